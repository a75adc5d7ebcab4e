#include "datasets/lmdb_reader.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <vector>

#include "base/file.h"
#include "base/little_endian.h"

namespace trainer::datasets {
namespace {

using little_endian::load;
using Bytes = std::span<const uint8_t>;

// Each page begins with its number and its kind; in the pages of a tree the sizes of what lies at their two ends follow. Where LMDB's
// source (mdb.c) has another name, it stands behind.
constexpr size_t kFlagsOffset = 10;  // mp_flags
constexpr size_t kLowerOffset = 12;  // mp_lower
constexpr size_t kUpperOffset = 14;  // mp_upper
constexpr size_t kPageHeader = 16;
constexpr uint16_t kBranch = 1;
constexpr uint16_t kLeaf = 2;
constexpr uint16_t kOverflow = 4;
constexpr uint16_t kMeta = 8;

// Pages 0 and 1 hold the states after the latest two transactions.
constexpr uint64_t kNumStates = 2;
constexpr size_t kStateBytes = 136;
constexpr uint32_t kMagic = 0xBEEFC0DE;
constexpr uint32_t kVersion = 1;
constexpr uint32_t kLeastPage = 512;
constexpr uint32_t kLargestPage = 32768;
constexpr uint64_t kNoPage = ~uint64_t{0};
constexpr uint16_t kIntegerKeys = 8;  // MDB_INTEGERKEY

constexpr size_t kNodeHeader = 8;
constexpr uint16_t kIsElsewhere = 1;  // F_BIGDATA: the node has the number of the pages with the entry
// LMDB's trees have no more levels; without a limit, a damaged tree could have a cycle.
constexpr int kMostLevels = 32;

[[noreturn]] void refuse_page(uint64_t number) { throw std::runtime_error(fmt::format("page {} of data.mdb is damaged", number)); }

LmdbState::Database load_database(const uint8_t* at) {
  return {.flags = load<uint16_t>(at + 4),
          .depth = load<uint16_t>(at + 6),
          .num_entries = load<uint64_t>(at + 32),
          .root = load<uint64_t>(at + 40)};
}

// The state in page 0 or 1 of a file with pages of that size; nullopt: there is none.
std::optional<LmdbState> load_state(Bytes file, uint64_t number, size_t page_bytes) {
  if (file.size() < number * page_bytes + kPageHeader + kStateBytes) return std::nullopt;
  const auto* page = file.data() + number * page_bytes;
  const auto* at = page + kPageHeader;
  if (load<uint64_t>(page) != number || load<uint16_t>(page + kFlagsOffset) != kMeta || load<uint32_t>(at) != kMagic) return std::nullopt;
  if (load<uint32_t>(at + 4) != kVersion || load<uint32_t>(at + 24) != page_bytes) return std::nullopt;
  return LmdbState{.page_bytes = static_cast<uint32_t>(page_bytes),
                   .free = load_database(at + 24),
                   .main = load_database(at + 72),
                   .last_page = load<uint64_t>(at + 120),
                   .transaction = load<uint64_t>(at + 128)};
}

std::vector<LmdbState> load_states(Bytes file) {
  for (uint32_t page_bytes = kLeastPage; page_bytes <= kLargestPage; page_bytes *= 2) {
    std::vector<LmdbState> states;
    for (uint64_t number = 0; number < kNumStates; ++number) {
      if (const auto state = load_state(file, number, page_bytes)) states.push_back(*state);
    }
    if (!states.empty()) return states;
  }
  return {};
}

// A page of a tree.
struct Page {
  uint64_t number = 0;
  Bytes bytes = {};
  size_t num_nodes = 0;
  bool is_leaf = false;
};

struct Node {
  std::string_view key;
  uint64_t number = 0;     // of a branch: the page below
  uint64_t num_bytes = 0;  // of a leaf: of the entry
  uint16_t flags = 0;      // of a leaf
  Bytes rest = {};         // of the page, after the key
};

// The pages of a file, which has all of them.
class Pages {
 public:
  Pages(Bytes file, const LmdbState& state) : file_(file), page_bytes_(state.page_bytes), num_pages_(state.last_page + 1) {}

  uint64_t num_pages() const { return num_pages_; }
  uint64_t num_pages_of(uint64_t num_bytes) const { return (kPageHeader + num_bytes - 1) / page_bytes_ + 1; }

  Bytes bytes_at(uint64_t number) const {
    if (number < kNumStates || number >= num_pages_) refuse_page(number);
    return file_.subspan(number * page_bytes_, page_bytes_);
  }

  Page page_at(uint64_t number) const {
    const auto bytes = bytes_at(number);
    const auto flags = load<uint16_t>(bytes.data() + kFlagsOffset);
    const size_t lower = load<uint16_t>(bytes.data() + kLowerOffset);
    const size_t upper = load<uint16_t>(bytes.data() + kUpperOffset);
    const bool is_leaf = flags == kLeaf;
    if (load<uint64_t>(bytes.data()) != number || (!is_leaf && flags != kBranch)) refuse_page(number);
    const size_t least = kPageHeader + sizeof(uint16_t);  // with one node
    if (lower < least || lower % 2 != 0 || lower > upper || upper > page_bytes_) refuse_page(number);
    return {.number = number, .bytes = bytes, .num_nodes = (lower - kPageHeader) / sizeof(uint16_t), .is_leaf = is_leaf};
  }

  Node node_at(const Page& page, size_t i) const {
    const size_t offset = load<uint16_t>(page.bytes.data() + kPageHeader + sizeof(uint16_t) * i);
    const size_t least = kPageHeader + sizeof(uint16_t) * page.num_nodes;
    if (offset < least || offset + kNodeHeader > page_bytes_) refuse_page(page.number);
    const auto* header = page.bytes.data() + offset;
    const uint64_t low = load<uint32_t>(header);
    const auto flags = load<uint16_t>(header + 4);
    const size_t key_bytes = load<uint16_t>(header + 6);
    const auto after = page.bytes.subspan(offset + kNodeHeader);
    if (key_bytes > after.size()) refuse_page(page.number);
    Node node{.key = {reinterpret_cast<const char*>(after.data()), key_bytes}, .rest = after.subspan(key_bytes)};
    if (page.is_leaf) {
      node.num_bytes = low;
      node.flags = flags;
    } else {
      node.number = low | uint64_t{flags} << 32;
    }
    return node;
  }

  // The first page of the entry of a leaf's node, if that lies in pages of its own.
  std::optional<uint64_t> pages_of(const Page& page, const Node& node) const {
    if (node.flags != 0 && node.flags != kIsElsewhere) refuse_page(page.number);
    if (node.flags == 0) return std::nullopt;
    if (node.rest.size() < sizeof(uint64_t)) refuse_page(page.number);
    const auto first = load<uint64_t>(node.rest.data());
    if (first < kNumStates || first >= num_pages_ || num_pages_of(node.num_bytes) > num_pages_ - first) refuse_page(page.number);
    return first;
  }

  Bytes entry_of(const Page& page, const Node& node) const {
    if (const auto first = pages_of(page, node)) return file_.subspan(*first * page_bytes_ + kPageHeader, node.num_bytes);
    if (node.num_bytes > node.rest.size()) refuse_page(page.number);
    return node.rest.first(node.num_bytes);
  }

 private:
  Bytes file_;
  size_t page_bytes_;
  uint64_t num_pages_;
};

// Visits each page of the trees once.
class TreeCheck {
 public:
  explicit TreeCheck(const Pages& pages) : pages_(pages), is_used_(pages.num_pages()) {}

  // `check_entry`: gets each leaf's page and entry.
  template <class CheckEntry>
  void check(const LmdbState::Database& database, const CheckEntry& check_entry) {
    num_entries_ = 0;
    depth_ = database.depth;
    if (depth_ > kMostLevels) throw std::runtime_error("what data.mdb says about its tree is damaged");
    if (database.root != kNoPage) check_page(database.root, 1, check_entry);
    if (num_entries_ != database.num_entries) throw std::runtime_error("data.mdb has another number of entries than it says");
  }

  void use(uint64_t first, uint64_t count) {
    for (uint64_t number = first; number < first + count; ++number) {
      if (number < kNumStates || number >= is_used_.size() || is_used_[number]) refuse_page(number);
      is_used_[number] = true;
    }
  }

 private:
  template <class CheckEntry>
  void check_page(uint64_t number, int level, const CheckEntry& check_entry) {
    use(number, 1);
    const auto page = pages_.page_at(number);
    if (page.is_leaf != (level == depth_)) refuse_page(number);
    // LMDB expects it.
    if (!page.is_leaf && page.num_nodes < 2) refuse_page(number);
    for (size_t i = 0; i < page.num_nodes; ++i) {
      const auto node = pages_.node_at(page, i);
      if (!page.is_leaf) {
        check_page(node.number, level + 1, check_entry);
        continue;
      }
      const auto entry = pages_.entry_of(page, node);
      if (const auto first = pages_.pages_of(page, node)) use(*first, pages_.num_pages_of(node.num_bytes));
      check_entry(page, node, entry);
      ++num_entries_;
    }
  }

  const Pages& pages_;
  std::vector<bool> is_used_;
  uint64_t num_entries_ = 0;
  int depth_ = 0;
};

}  // namespace

LmdbReader::LmdbReader(const std::filesystem::path& file) : file_(file) {
  const FileAccess access("opening", file);
  const auto refuse = [&](std::string_view reason) { throw std::runtime_error(fmt::format("cannot read {}: {}", file.string(), reason)); };
  const auto bytes = file_.bytes();
  if (bytes.empty()) refuse("it is empty");
  const auto states = load_states(bytes);
  if (states.empty()) refuse("it is not an LMDB file, or its beginning is damaged");
  has_both_states_ = states.size() == kNumStates;
  state_ = std::ranges::max(states, {}, &LmdbState::transaction);
  if (state_.last_page < kNumStates - 1 || state_.last_page >= kNoPage / kLargestPage) refuse("its beginning is damaged");
  if (const auto num_bytes = (state_.last_page + 1) * state_.page_bytes; num_bytes > bytes.size()) {
    throw std::runtime_error(fmt::format("{} has only {} of {} bytes", file.string(), bytes.size(), num_bytes));
  }
  // Entries are read in random order. What is only advice may fail.
  ::madvise(const_cast<uint8_t*>(bytes.data()), bytes.size(), MADV_RANDOM);
}

std::span<const uint8_t> LmdbReader::find(std::string_view key) const {
  const Pages pages(file_.bytes(), state_);
  auto number = state_.main.root;
  if (number == kNoPage) return {};
  for (int level = 0; level < kMostLevels; ++level) {
    const auto page = pages.page_at(number);
    // The first node of a branch has no key: it comes before all others.
    const auto nodes = std::views::iota(size_t{page.is_leaf ? 0U : 1U}, page.num_nodes);
    const auto key_of = [&](size_t i) { return pages.node_at(page, i).key; };
    if (!page.is_leaf) {
      const auto num_before = std::ranges::upper_bound(nodes, key, {}, key_of) - nodes.begin();
      number = pages.node_at(page, static_cast<size_t>(num_before)).number;
      continue;
    }
    const auto found = std::ranges::lower_bound(nodes, key, {}, key_of);
    if (found == nodes.end() || key_of(*found) != key) return {};
    return pages.entry_of(page, pages.node_at(page, *found));
  }
  refuse_page(number);
}

void LmdbReader::check_for_writing() const {
  const bool has_usual_flags = state_.free.flags == kIntegerKeys && state_.main.flags == 0;
  if (!has_both_states_ || !has_usual_flags) throw std::runtime_error("the beginning of data.mdb is damaged");
  const Pages pages(file_.bytes(), state_);
  TreeCheck check(pages);
  check.check(state_.main, [](const Page&, const Node&, Bytes) {});
  // The pages that each transaction has freed: their count and their numbers, in descending order.
  std::vector<uint64_t> free;
  check.check(state_.free, [&](const Page& page, const Node& node, Bytes entry) {
    if (node.key.size() != sizeof(uint64_t) || entry.size() < sizeof(uint64_t)) refuse_page(page.number);
    if (const auto first = pages.pages_of(page, node)) {
      const auto* header = pages.bytes_at(*first).data();
      const bool is_good = load<uint64_t>(header) == *first && load<uint16_t>(header + kFlagsOffset) == kOverflow &&
                           load<uint32_t>(header + kLowerOffset) == pages.num_pages_of(entry.size());
      if (!is_good) refuse_page(*first);
    }
    const auto count = load<uint64_t>(entry.data());
    if (count > entry.size() / sizeof(uint64_t) - 1) refuse_page(page.number);
    uint64_t before = kNoPage;
    for (uint64_t i = 1; i <= count; ++i) {
      const auto number = load<uint64_t>(entry.data() + sizeof(uint64_t) * i);
      if (number >= before) refuse_page(page.number);
      before = number;
      free.push_back(number);
    }
  });
  for (const auto number : free) check.use(number, 1);
}

}  // namespace trainer::datasets
