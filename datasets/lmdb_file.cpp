#include "datasets/lmdb_file.h"

#include <fmt/format.h>
#include <libdeflate.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "base/text.h"
#include "trainer/error.h"

namespace trainer::datasets {
namespace {

constexpr const char* kFormat = "trainer packed data set";

// The header of a sample's entry: checksum, kind of content, order of pixels, channels, height and width.
constexpr size_t kKindOffset = 4;
constexpr size_t kOrderOffset = 5;
constexpr size_t kChannelsOffset = 6;
constexpr size_t kHeightOffset = 8;
constexpr size_t kWidthOffset = 12;
constexpr size_t kHeaderBytes = 16;

enum class Kind : uint8_t { kFile = 0, kPixels = 1, kUnreadable = 2 };

std::string make_entry(Kind kind, const data::ImageView& image, std::string_view content) {
  std::string entry;
  entry.reserve(kHeaderBytes + content.size());
  entry.append(kKindOffset, '\0');
  entry += static_cast<char>(kind);
  entry += static_cast<char>(image.order == data::PixelOrder::kInterleaved);
  little_endian::append(entry, static_cast<uint16_t>(image.channels));
  little_endian::append(entry, static_cast<uint32_t>(image.height));
  little_endian::append(entry, static_cast<uint32_t>(image.width));
  return entry += content;
}

// The CRC-32 of the index of the sample, so that entries cannot be confused, and of the bytes that follow the checksum in the entry.
uint32_t checksum_of(const StoredEntry& entry) {
  std::string index;
  little_endian::append(index, static_cast<uint64_t>(entry.index));
  const auto rest = entry.bytes.subspan(kKindOffset);
  return libdeflate_crc32(libdeflate_crc32(0, index.data(), index.size()), rest.data(), rest.size());
}

void check_size(const StoredEntry& entry) {
  const auto size = entry.bytes.size();
  if (size < kHeaderBytes) throw std::runtime_error(fmt::format("its entry is damaged: it has only {}", counted(size, "byte")));
}

void compare_checksum(const StoredEntry& entry) {
  if (checksum_of(entry) != little_endian::load<uint32_t>(entry.bytes.data())) {
    throw std::runtime_error("it is damaged: its checksum is wrong");
  }
}

}  // namespace

std::string sample_key(int64_t index, int64_t num_samples) {
  constexpr size_t kLeastDigits = 8;
  return fmt::format("{:0{}}", index, std::max(kLeastDigits, fmt::formatted_size("{}", num_samples - 1)));
}

namespace {

// The names of targets that are not labels.
constexpr const char* kClasses = "classes";
constexpr const char* kNumbers = "numbers";

// Values of the key "exif_orientation": how the orientation of stored image files is treated.
constexpr const char* kApply = "apply";
constexpr const char* kIgnore = "ignore";

}  // namespace

std::string to_json(const PackInfo& info) {
  const auto& samples = info.samples;
  nlohmann::ordered_json json = {{"format", kFormat},
                                 {"version", kPackVersion},
                                 {"source", info.source},
                                 {"num_samples", info.num_samples},
                                 {"shape", samples.shape},
                                 {"num_classes", samples.num_classes},
                                 {"class_names", samples.class_names},
                                 {"raw", info.options.raw},
                                 {"resize", nullptr},
                                 {"train_transforms", info.transforms.train},
                                 {"validation_transforms", info.transforms.validation}};
  if (info.options.resize) json["resize"] = *info.options.resize;
  if (!info.folder.empty()) json["folder"] = info.folder;
  json["mode"] = data::name_of(samples.decoding.mode);
  json["exif_orientation"] = samples.decoding.is_turned_upright ? kApply : kIgnore;
  if (samples.decoding.mode == data::ImageMode::kRaw) json["maximum"] = samples.decoding.maximum;
  if (samples.has_values()) json["targets"] = samples.is_multi_label ? kClasses : kNumbers;
  if (samples.num_classes == 0) {
    json["num_targets"] = samples.num_targets;
    json["target_names"] = samples.target_names;
  }
  // Replaces invalid bytes, because the names of folders are not always UTF-8.
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

PackInfo parse_pack_info(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    if (json.at("format") != kFormat) throw std::runtime_error("it was not written by `trainer data pack`");
    PackInfo info;
    if (const int64_t version = json.at("version"); version != kPackVersion) {
      throw std::runtime_error(
          fmt::format("it has version {} of the format, but this program reads only version {}", version, kPackVersion));
    }
    info.source = json.at("source");
    info.num_samples = json.at("num_samples");
    info.samples.shape = json.at("shape").get<std::vector<int64_t>>();
    info.samples.num_classes = json.at("num_classes");
    info.samples.class_names = json.at("class_names").get<std::vector<std::string>>();
    info.options.raw = json.at("raw");
    if (!json.at("resize").is_null()) info.options.resize = json.at("resize").get<int64_t>();
    info.transforms = {.train = json.at("train_transforms"), .validation = json.at("validation_transforms")};
    info.folder = json.value("folder", "");
    auto& decoding = info.samples.decoding;
    decoding.mode = data::image_mode_of(json.at("mode").get<std::string>());
    decoding.is_turned_upright = json.at("exif_orientation") == kApply;
    if (decoding.mode == data::ImageMode::kRaw) {
      decoding.channels = static_cast<int>(info.samples.shape.at(0));
      decoding.maximum = json.at("maximum");
    }
    const auto targets = json.value("targets", "");
    info.samples.is_multi_label = targets == kClasses;
    if (targets == kNumbers) {
      info.samples.num_targets = json.at("num_targets");
      info.samples.target_names = json.at("target_names").get<std::vector<std::string>>();
    }
    const auto& samples = info.samples;
    const bool has_outputs = targets == kNumbers ? samples.num_classes == 0 && samples.num_targets > 0 : samples.num_classes > 0;
    const bool names_fit = samples.class_names.empty() || static_cast<int64_t>(samples.class_names.size()) == samples.num_classes;
    if (info.num_samples < 1 || samples.shape.size() != 3 || !has_outputs || !names_fit) {
      throw std::runtime_error("its entry #info is damaged");
    }
    return info;
  } catch (const nlohmann::json::exception&) {
    throw std::runtime_error("its entry #info is damaged");
  }
}

std::string checksums_entry(std::string_view info, std::string_view labels, std::string_view names) {
  std::string entry;
  for (const auto part : {info, labels, names}) little_endian::append(entry, libdeflate_crc32(0, part.data(), part.size()));
  return entry;
}

int64_t num_value_bytes(const data::DatasetInfo& samples) { return samples.num_classes > 0 ? sizeof(float) : sizeof(double); }

int64_t num_target_bytes(const data::DatasetInfo& samples) {
  return samples.has_labels() ? int64_t{sizeof(int64_t)} : samples.num_outputs() * num_value_bytes(samples);
}

std::string file_entry(std::span<const uint8_t> file) { return make_entry(Kind::kFile, {}, as_text(file)); }

std::string pixels_entry(const data::ImageView& image) {
  const auto num_bytes = static_cast<size_t>(image.channels) * static_cast<size_t>(image.height) * static_cast<size_t>(image.width);
  return make_entry(Kind::kPixels, image, as_text({image.pixels, num_bytes}));
}

std::string unreadable_entry(std::string_view reason) { return make_entry(Kind::kUnreadable, {}, reason); }

void finish_entry(std::string& entry, int64_t index) {
  const std::span bytes(reinterpret_cast<const uint8_t*>(entry.data()), entry.size());
  std::string checksum;
  little_endian::append(checksum, checksum_of({.bytes = bytes, .index = index}));
  entry.replace(0, checksum.size(), checksum);
}

void check_entry(const StoredEntry& entry) {
  check_size(entry);
  compare_checksum(entry);
}

data::Sample read_entry(const StoredEntry& stored) {
  check_size(stored);
  const auto entry = stored.bytes;
  const auto content = entry.subspan(kHeaderBytes);
  data::Sample sample;
  switch (static_cast<Kind>(entry[kKindOffset])) {
    case Kind::kFile:
      compare_checksum(stored);
      if (content.empty()) throw std::runtime_error("it is damaged: its file is empty");
      sample.encoded = content;
      return sample;
    case Kind::kPixels: {
      const auto order = entry[kOrderOffset] == 0 ? data::PixelOrder::kPlanar : data::PixelOrder::kInterleaved;
      const uint64_t channels = little_endian::load<uint16_t>(entry.data() + kChannelsOffset);
      const uint64_t height = little_endian::load<uint32_t>(entry.data() + kHeightOffset);
      const uint64_t width = little_endian::load<uint32_t>(entry.data() + kWidthOffset);
      constexpr uint64_t kMost = 65536;
      if (height > kMost || width > kMost || channels * height * width != content.size()) {
        throw std::runtime_error("it is damaged: its number of bytes does not match its height, width and channels");
      }
      sample.image =
          data::ImageView::whole(content.data(), static_cast<int>(channels), static_cast<int>(height), static_cast<int>(width), order);
      return sample;
    }
    case Kind::kUnreadable:
      compare_checksum(stored);
      throw std::runtime_error(std::string(as_text(content)));
    default:
      throw std::runtime_error("it is damaged: its entry is of an unknown kind");
  }
}

namespace {

namespace fs = std::filesystem;

// Without LMDB's lock: the caller makes sure that only one process writes.
constexpr unsigned kFlags = MDB_NOLOCK | MDB_NOTLS;
constexpr mode_t kFileMode = 0666;

MDB_val as_value(std::string_view text) { return {text.size(), const_cast<char*>(text.data())}; }

LmdbEnvironment create_environment() {
  MDB_env* environment = nullptr;
  if (mdb_env_create(&environment) != MDB_SUCCESS) throw std::bad_alloc();
  return LmdbEnvironment(environment);
}

}  // namespace

fs::path lmdb_file(const fs::path& folder) { return folder / "data.mdb"; }

LmdbWriter::LmdbWriter(const fs::path& folder) : file_(lmdb_file(folder)), environment_(create_environment()) {
  const FileAccess access("opening", file_);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(fmt::format("cannot create {}: {}", folder.string(), explain_refusal(folder, error)));
  refuse_damage();
  require(mdb_env_open(environment_.get(), folder.c_str(), kFlags, kFileMode));
  const auto transaction = begin(MDB_RDONLY);
  require(mdb_dbi_open(transaction.get(), nullptr, 0, &database_));
}

// Checked first, because LMDB's library may crash on a damaged file.
void LmdbWriter::refuse_damage() const {
  std::error_code error;
  if (!fs::exists(file_, error) || fs::file_size(file_, error) == 0) return;
  try {
    LmdbReader(file_).check_for_writing();
  } catch (const std::runtime_error& reason) {
    throw DataError(fmt::format("{}; remove {} and pack again", reason.what(), file_.parent_path().string()));
  }
}

void LmdbWriter::require(int result) const {
  if (result == MDB_SUCCESS) return;
  // LMDB reports an incomplete write as EIO.
  const auto* const hint = result == EIO ? " (the disk may be full)" : "";
  const auto reason = result > 0 ? explain_refusal(file_, {result, std::generic_category()}) : std::string(mdb_strerror(result));
  throw Error(fmt::format("cannot write {}: {}{}; fix this, and run the same command again to continue", file_.string(), reason, hint));
}

LmdbTransaction LmdbWriter::begin(unsigned flags) const {
  MDB_txn* transaction = nullptr;
  require(mdb_txn_begin(environment_.get(), nullptr, flags, &transaction));
  return LmdbTransaction(transaction);
}

size_t LmdbWriter::num_entries() const {
  MDB_stat status{};
  mdb_env_stat(environment_.get(), &status);
  return status.ms_entries;
}

std::string LmdbWriter::find(std::string_view key) const {
  const auto transaction = begin(MDB_RDONLY);
  auto name = as_value(key);
  MDB_val value{};
  const int result = mdb_get(transaction.get(), database_, &name, &value);
  if (result == MDB_NOTFOUND) return "";
  require(result);
  return {static_cast<const char*>(value.mv_data), value.mv_size};
}

void LmdbWriter::reserve(size_t num_bytes, size_t num_entries) {
  MDB_stat status{};
  MDB_envinfo info{};
  require(mdb_env_stat(environment_.get(), &status));
  require(mdb_env_info(environment_.get(), &info));
  // An entry may begin and end within a page, and may need a page of the tree; LMDB also rewrites the pages of the tree that change.
  constexpr size_t kPagesPerEntry = 3;
  constexpr size_t kOtherPages = 256;
  const size_t num_pages = info.me_last_pgno + 1 + num_entries * kPagesPerEntry + kOtherPages;
  const size_t needed = num_pages * status.ms_psize + num_bytes;
  if (needed > info.me_mapsize) require(mdb_env_set_mapsize(environment_.get(), needed));
}

void LmdbWriter::append(std::span<const std::pair<std::string, std::string>> entries) {
  const FileAccess access("writing", file_);
  size_t num_bytes = 0;
  for (const auto& [key, value] : entries) num_bytes += key.size() + value.size();
  reserve(num_bytes, entries.size());
  auto transaction = begin(0);
  for (const auto& [key, value] : entries) {
    auto name = as_value(key);
    auto content = as_value(value);
    require(mdb_put(transaction.get(), database_, &name, &content, MDB_APPEND));
  }
  require(mdb_txn_commit(transaction.release()));
}

namespace {

using little_endian::load;
using Bytes = std::span<const uint8_t>;

// Each page begins with its number and its kind; pages of a tree continue with the positions of their free space. The comments below are
// the names in LMDB's source (mdb.c).
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
constexpr uint16_t kIsElsewhere = 1;  // F_BIGDATA: the node contains the number of the entry's first page instead of the entry
// LMDB's own limit; without it, a search in a damaged tree with a cycle would never end.
constexpr int kMostLevels = 32;

[[noreturn]] void refuse_page(uint64_t number) { throw std::runtime_error(fmt::format("page {} of data.mdb is damaged", number)); }

LmdbState::Database load_database(const uint8_t* at) {
  return {.flags = load<uint16_t>(at + 4),
          .depth = load<uint16_t>(at + 6),
          .num_entries = load<uint64_t>(at + 32),
          .root = load<uint64_t>(at + 40)};
}

// The state in page 0 or 1 of a file with pages of this size; nullopt: there is none.
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
  uint64_t number = 0;     // in a branch: the page below
  uint64_t num_bytes = 0;  // in a leaf: size of the entry
  uint16_t flags = 0;      // in a leaf
  Bytes rest = {};         // the rest of the page after the key
};

// The pages of a file that is known to be complete.
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

  // The first page of the entry of a node in a leaf, if the entry has separate pages.
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

  // Calls check_entry(page, node, entry) for each node of the leaves.
  template <class CheckEntry>
  void check(const LmdbState::Database& database, const CheckEntry& check_entry) {
    num_entries_ = 0;
    depth_ = database.depth;
    if (depth_ > kMostLevels) throw std::runtime_error("the description of the tree in data.mdb is damaged");
    if (database.root != kNoPage) check_page(database.root, 1, check_entry);
    if (num_entries_ != database.num_entries) throw std::runtime_error("the number of entries in data.mdb is wrong");
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
    // LMDB requires that a branch has at least two nodes.
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
  // Entries are read in random order. A failure does not matter, because this is only a hint.
  ::madvise(const_cast<uint8_t*>(bytes.data()), bytes.size(), MADV_RANDOM);
}

std::span<const uint8_t> LmdbReader::find(std::string_view key) const {
  const Pages pages(file_.bytes(), state_);
  auto number = state_.main.root;
  if (number == kNoPage) return {};
  for (int level = 0; level < kMostLevels; ++level) {
    const auto page = pages.page_at(number);
    // The first node of a branch has no key; the page below it has the keys less than the key of the second node.
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
  // Each entry contains the pages that one transaction has freed: their count, then their numbers in descending order.
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

namespace {

// Pending entries are committed at this size or after this time.
constexpr size_t kCommitBytes = size_t{16} << 20;
constexpr std::chrono::seconds kCommitInterval{1};

std::string labels_of(const data::Dataset& dataset) {
  std::string labels;
  const auto& info = dataset.info();
  for (int64_t i = 0; i < dataset.size(); ++i) {
    if (info.has_labels()) little_endian::append(labels, static_cast<uint64_t>(dataset.label(i)));
    for (const auto value : info.has_values() ? dataset.target_values(i) : std::vector<double>()) {
      if (info.num_classes > 0) {
        little_endian::append(labels, std::bit_cast<uint32_t>(static_cast<float>(value)));
      } else {
        little_endian::append(labels, std::bit_cast<uint64_t>(value));
      }
    }
  }
  return labels;
}

std::string names_of(const data::Dataset& dataset) {
  std::string names;
  for (int64_t i = 0; i < dataset.size(); ++i) names.append(dataset.name(i)).push_back('\0');
  return names;
}

// The index of the first sample that differs between two entries #labels or #names.
int64_t first_different_label(const std::string& a, const std::string& b, const data::DatasetInfo& info) {
  return (std::ranges::mismatch(a, b).in1 - a.begin()) / num_target_bytes(info);
}
int64_t first_different_name(const std::string& a, const std::string& b) {
  return std::count(a.begin(), std::ranges::mismatch(a, b).in1, '\0');
}

std::string describe(const PackOptions& options) {
  const auto resize = options.resize ? fmt::format("--resize {}", *options.resize) : "no --resize";
  return fmt::format("{} and {}", options.raw ? "--raw" : "no --raw", resize);
}

// "images of 3 x 32 x 32", or for images of different sizes "images of 3 x any x any".
std::string shape_text(const data::DatasetInfo& samples) {
  std::vector<std::string> sizes;
  for (const auto size : samples.shape) sizes.push_back(size == data::kAnySize ? "any" : std::to_string(size));
  return "images of " + join(sizes, " x ");
}

std::string decoding_text(const data::ImageDecoding& decoding) {
  std::string values;
  if (decoding.mode == data::ImageMode::kRaw)
    values = decoding.maximum == 0 ? " with signed or floating-point values" : fmt::format(" with values up to {:g}", decoding.maximum);
  return fmt::format("dataset.mode: {}{}, dataset.exif_orientation: {}", data::name_of(decoding.mode), values,
                     decoding.is_turned_upright ? kApply : kIgnore);
}

// The first change since the packing began, as the old and the new value; both are empty if nothing has changed.
std::pair<std::string, std::string> difference(const PackInfo& before, const PackInfo& now) {
  if (before.source != now.source) return {"dataset.name: " + before.source, now.source};
  if (before.options != now.options) return {describe(before.options), describe(now.options)};
  if (before.samples.decoding != now.samples.decoding) return {decoding_text(before.samples.decoding), decoding_text(now.samples.decoding)};
  if (before.samples.shape != now.samples.shape) return {shape_text(before.samples), shape_text(now.samples)};
  const auto num_classes = [](const PackInfo& info) { return counted(info.samples.num_classes, "class", "classes"); };
  if (before.samples.num_classes != now.samples.num_classes) return {num_classes(before), num_classes(now)};
  const auto targets = [](const data::DatasetInfo& info) { return std::tuple(info.is_multi_label, info.num_targets, info.target_names); };
  if (targets(before.samples) != targets(now.samples)) return {"other targets", "the present targets"};
  const auto& names = before.samples.class_names;
  const auto& names_now = now.samples.class_names;
  if (names != names_now) {
    const auto [was, is] = std::ranges::mismatch(names, names_now);
    return {"class " + (was == names.end() ? "without a name" : *was), is == names_now.end() ? "without a name" : *is};
  }
  if (before.num_samples != now.num_samples) return {counted(before.num_samples, "sample"), counted(now.num_samples, "sample")};
  return {};
}

}  // namespace

PackWriter::PackWriter(const std::filesystem::path& folder, const PackInfo& info, const data::Dataset& source)
    : writer_(folder), num_samples_(info.num_samples) {
  // Serialised first, because names that are not UTF-8 change when they are stored.
  const auto json = to_json(info);
  const auto now = parse_pack_info(json);
  const auto labels = labels_of(source);
  const auto names = names_of(source);
  const auto stored = writer_.find(kInfoKey);
  if (stored.empty()) {
    const std::vector<std::pair<std::string, std::string>> entries = {{std::string(kChecksumsKey), checksums_entry(json, labels, names)},
                                                                      {std::string(kInfoKey), json},
                                                                      {std::string(kLabelsKey), labels},
                                                                      {std::string(kNamesKey), names}};
    writer_.append(entries);
    return;
  }
  const auto refuse_change = [&folder](const std::string& before, const std::string& after) {
    throw UsageError(fmt::format("{} was begun with {}, not with {}; continue with the original settings, or remove that folder",
                                 folder.string(), before, after));
  };
  if (const auto [before, after] = difference(parse_pack_info(stored), now); !before.empty()) refuse_change(before, after);
  if (const auto before = writer_.find(kNamesKey); before != names) {
    const auto index = first_different_name(before, names);
    refuse_change(fmt::format("another sample at index {}", index), source.describe(index));
  }
  if (const auto before = writer_.find(kLabelsKey); before != labels) {
    const auto index = first_different_label(before, labels, source.info());
    const bool has_labels = source.info().has_labels();
    refuse_change(fmt::format("another {} of {}", has_labels ? "label" : "target", source.describe(index)),
                  has_labels ? fmt::format("{}", source.label(index)) : fmt::format("{}", fmt::join(source.target_values(index), " ")));
  }
}

void PackWriter::add(std::string entry) {
  num_waiting_bytes_ += entry.size();
  const auto index = num_written();
  finish_entry(entry, index);
  waiting_.emplace_back(sample_key(index, num_samples_), std::move(entry));
  if (num_waiting_bytes_ >= kCommitBytes || std::chrono::steady_clock::now() - committed_at_ >= kCommitInterval) commit();
}

void PackWriter::commit() {
  writer_.append(waiting_);
  waiting_.clear();
  num_waiting_bytes_ = 0;
  committed_at_ = std::chrono::steady_clock::now();
}

}  // namespace trainer::datasets
