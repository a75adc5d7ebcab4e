#include "datasets/lmdb_file.h"

#include <fmt/format.h>
#include <libdeflate.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "base/bytes.h"
#include "base/text.h"
#include "datasets/files.h"
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

// The names of targets that are not labels.
constexpr const char* kClasses = "classes";
constexpr const char* kNumbers = "numbers";

// Values of the key "exif_orientation": how the orientation of stored image files is treated.
constexpr const char* kApply = "apply";
constexpr const char* kIgnore = "ignore";

}  // namespace

std::string sample_key(int64_t index, int64_t num_samples) {
  constexpr size_t kLeastDigits = 8;
  return fmt::format("{:0{}}", index, std::max(kLeastDigits, fmt::formatted_size("{}", num_samples - 1)));
}

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

// Pages 0 and 1 hold the states after the latest two transactions (MDB_meta), with the trees of the unused pages and of the entries.
constexpr uint64_t kNumStates = 2;
constexpr size_t kStateBytes = 136;
constexpr size_t kFreeTree = 24;
constexpr size_t kMainTree = 72;
constexpr size_t kLastPage = 120;
constexpr size_t kTransaction = 128;
constexpr uint32_t kMagic = 0xBEEFC0DE;
constexpr uint32_t kVersion = 1;
constexpr uint32_t kLeastPage = 512;
constexpr uint32_t kLargestPage = 32768;
constexpr uint64_t kNoPage = ~uint64_t{0};

constexpr size_t kNodeHeader = 8;
constexpr uint16_t kIsElsewhere = 1;  // F_BIGDATA: the node contains the number of the entry's first page instead of the entry
constexpr int kMostLevels = 32;       // LMDB's own limit

[[noreturn]] void refuse_page(uint64_t number) { throw std::runtime_error(fmt::format("its page {} is damaged", number)); }
[[noreturn]] void refuse_beginning() { throw std::runtime_error("it is not an LMDB file, or its beginning is damaged"); }

// LMDB's library trusts the numbers in a file: damage of a few bytes makes it divide by zero, read outside of its map or fail an assertion.
// The constructor checks each number on which it relies. It reads all pages of the trees, but not the pages of large entries. Throws
// std::runtime_error with only the reason.
class FileCheck {
 public:
  explicit FileCheck(Bytes file) : file_(file) {
    if (file.empty()) throw std::runtime_error("it is empty");
    if (file.size() < kPageHeader + kStateBytes) refuse_beginning();
    page_bytes_ = load<uint32_t>(&file[kPageHeader + kFreeTree]);
    if (page_bytes_ < kLeastPage || page_bytes_ > kLargestPage || !std::has_single_bit(page_bytes_)) refuse_beginning();
    const auto* const state = std::max(state_in(0), state_in(1), [](const auto* a, const auto* b) {
      return load<uint64_t>(a + kTransaction) < load<uint64_t>(b + kTransaction);
    });
    const auto last_page = load<uint64_t>(state + kLastPage);
    if (last_page < kNumStates - 1 || last_page >= kNoPage / kLargestPage) refuse_beginning();
    if (const auto needed = (last_page + 1) * page_bytes_; needed > file.size()) {
      throw std::runtime_error(fmt::format("it has only {} of {} bytes", file.size(), needed));
    }
    is_used_.resize(last_page + 1);
    check_tree(state + kMainTree, 0);
    is_free_tree_ = true;
    check_tree(state + kFreeTree, MDB_INTEGERKEY);
    for (const auto number : free_) use(number, 1);
  }

 private:
  const uint8_t* state_in(uint64_t number) const {
    if (file_.size() < number * page_bytes_ + kPageHeader + kStateBytes) refuse_beginning();
    const auto* const page = &file_[number * page_bytes_];
    const auto* const state = page + kPageHeader;
    if (load<uint64_t>(page) != number || load<uint16_t>(page + kFlagsOffset) != kMeta || load<uint32_t>(state) != kMagic ||
        load<uint32_t>(state + 4) != kVersion || load<uint32_t>(state + kFreeTree) != page_bytes_) {
      refuse_beginning();
    }
    return state;
  }

  void use(uint64_t first, uint64_t count) {
    if (first < kNumStates || first >= is_used_.size() || count > is_used_.size() - first) refuse_page(first);
    for (uint64_t number = first; number < first + count; ++number) {
      if (is_used_[number]) refuse_page(number);
      is_used_[number] = true;
    }
  }

  void check_tree(const uint8_t* tree, unsigned flags) {
    depth_ = load<uint16_t>(tree + 6);
    num_entries_ = 0;
    const auto root = load<uint64_t>(tree + 40);
    if (load<uint16_t>(tree + 4) != flags || depth_ > kMostLevels || (depth_ == 0) != (root == kNoPage)) refuse_beginning();
    if (depth_ > 0) check_page(root, 1);
    if (num_entries_ != load<uint64_t>(tree + 32)) refuse_beginning();
  }

  void check_page(uint64_t number, int level) {
    use(number, 1);
    const auto page = file_.subspan(number * page_bytes_, page_bytes_);
    const size_t lower = load<uint16_t>(&page[kLowerOffset]);
    const size_t upper = load<uint16_t>(&page[kUpperOffset]);
    const bool is_leaf = level == depth_;
    if (load<uint64_t>(page.data()) != number || load<uint16_t>(&page[kFlagsOffset]) != (is_leaf ? kLeaf : kBranch)) refuse_page(number);
    // LMDB requires that a leaf has at least one node, and a branch two.
    const size_t least = kPageHeader + sizeof(uint16_t) * (is_leaf ? 1 : 2);
    if (lower < least || lower % 2 != 0 || lower > upper || upper > page_bytes_) refuse_page(number);
    std::vector<std::pair<size_t, size_t>> places;  // of the nodes, which fill the page from `upper` to its end
    std::vector<uint64_t> below;
    for (size_t position = kPageHeader; position < lower; position += sizeof(uint16_t)) {
      const size_t offset = load<uint16_t>(&page[position]);
      if (offset < upper || offset > page_bytes_) refuse_page(number);
      // The first node of a branch has no key.
      const bool has_key = is_leaf || position > kPageHeader;
      places.emplace_back(offset, check_node(number, page.subspan(offset), has_key, is_leaf ? nullptr : &below));
    }
    std::ranges::sort(places);
    size_t end = upper;
    for (const auto& [offset, size] : places) {
      if (offset != end) refuse_page(number);
      end += size;
    }
    if (end != page_bytes_) refuse_page(number);
    for (const auto next : below) check_page(next, level + 1);
  }

  // Checks a node, which begins at `bytes`, and returns its size. In a branch, adds the number of the page below it to `below`.
  size_t check_node(uint64_t number, Bytes bytes, bool has_key, std::vector<uint64_t>* below) {
    if (bytes.size() < kNodeHeader) refuse_page(number);
    const uint64_t low = load<uint32_t>(bytes.data());
    const auto flags = load<uint16_t>(&bytes[4]);
    const size_t key_bytes = load<uint16_t>(&bytes[6]);
    const auto after = bytes.subspan(kNodeHeader);
    if (key_bytes > after.size() || (is_free_tree_ && has_key && key_bytes != sizeof(uint64_t))) refuse_page(number);
    size_t value_bytes = 0;
    if (below != nullptr) {
      below->push_back(low | uint64_t{flags} << 32);
      // Requests all pages before the first of them is needed. A failure does not matter, because this is only a hint.
      if (below->back() < is_used_.size()) ::madvise(const_cast<uint8_t*>(&file_[below->back() * page_bytes_]), page_bytes_, MADV_WILLNEED);
    } else {
      const auto entry = entry_of(number, after.subspan(key_bytes), low, flags);
      if (is_free_tree_ && !are_free_pages(entry)) refuse_page(number);
      value_bytes = flags == kIsElsewhere ? sizeof(uint64_t) : entry.size();
      ++num_entries_;
    }
    return (kNodeHeader + key_bytes + value_bytes + 1) / 2 * 2;
  }

  // The entry of a node in a leaf; `rest`: the rest of the page after the node's key.
  Bytes entry_of(uint64_t number, Bytes rest, uint64_t num_bytes, uint16_t flags) {
    if (flags == kIsElsewhere && rest.size() >= sizeof(uint64_t)) {
      const auto first = load<uint64_t>(rest.data());
      const auto count = (kPageHeader + num_bytes - 1) / page_bytes_ + 1;
      use(first, count);
      // Only the pages of such an entry are freed, so that LMDB reads their header.
      const auto* const header = &file_[first * page_bytes_];
      const bool is_good = !is_free_tree_ || (load<uint64_t>(header) == first && load<uint16_t>(header + kFlagsOffset) == kOverflow &&
                                              load<uint32_t>(header + kLowerOffset) == count);
      if (!is_good) refuse_page(first);
      return file_.subspan(first * page_bytes_ + kPageHeader, num_bytes);
    }
    if (flags != 0 || num_bytes > rest.size()) refuse_page(number);
    return rest.first(num_bytes);
  }

  // Whether the entry contains the pages that a transaction has freed: their count, then their numbers in descending order.
  bool are_free_pages(Bytes entry) {
    if (entry.size() < sizeof(uint64_t)) return false;
    const auto count = load<uint64_t>(entry.data());
    if (count > entry.size() / sizeof(uint64_t) - 1) return false;
    uint64_t before = kNoPage;
    for (uint64_t i = 1; i <= count; ++i) {
      free_.push_back(load<uint64_t>(&entry[sizeof(uint64_t) * i]));
      if (free_.back() >= before) return false;
      before = free_.back();
    }
    return true;
  }

  Bytes file_;
  uint32_t page_bytes_ = 0;
  std::vector<bool> is_used_;
  bool is_free_tree_ = false;
  std::vector<uint64_t> free_;  // the unused pages
  uint64_t num_entries_ = 0;    // of the present tree, like `depth_`
  int depth_ = 0;
};

void check_file(const fs::path& path) {
  const MappedFile file(path);
  // A failure does not matter, because this is only a hint.
  ::madvise(const_cast<uint8_t*>(file.bytes().data()), file.bytes().size(), MADV_RANDOM);
  with_prefix<std::runtime_error>("cannot read " + path.string(), [&] { FileCheck check(file.bytes()); });
}

MDB_val as_value(std::string_view text) { return {text.size(), const_cast<char*>(text.data())}; }

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
  for (int64_t i = 0; i < dataset.size(); ++i) names.append(dataset.origin(i).name).push_back('\0');
  return names;
}

}  // namespace

fs::path lmdb_file(const fs::path& folder) { return folder / "data.mdb"; }

LmdbFile::LmdbFile(const fs::path& folder, Access access) : file_(lmdb_file(folder)), access_(access) {
  const FileAccess opening("opening", file_);
  const bool writes = access == Access::kWrite;
  std::error_code error;
  if (writes) fs::create_directories(folder, error);
  if (error) throw Error(fmt::format("cannot create {}: {}", folder.string(), explain_refusal(folder, error)));
  try {
    if (!writes || (fs::exists(file_, error) && fs::file_size(file_, error) > 0)) check_file(file_);
  } catch (const std::runtime_error& reason) {
    if (!writes) throw;
    throw DataError(fmt::format("{}; remove {} and pack again", reason.what(), folder.string()));
  }
  MDB_env* environment = nullptr;
  if (mdb_env_create(&environment) != MDB_SUCCESS) throw std::bad_alloc();
  environment_.reset(environment);
  // Without LMDB's lock: the caller makes sure that only one process writes. Without reading ahead: entries are read in random order.
  constexpr mode_t kFileMode = 0666;
  require(mdb_env_open(environment, folder.c_str(), MDB_NOLOCK | MDB_NOTLS | MDB_NORDAHEAD | (writes ? 0U : MDB_RDONLY), kFileMode));
  require(mdb_dbi_open(begin(MDB_RDONLY).get(), nullptr, 0, &database_));
}

void LmdbFile::require(int result) const {
  if (result == MDB_SUCCESS) return;
  if (access_ == Access::kRead) throw Error(fmt::format("cannot read {}: {}", file_.string(), mdb_strerror(result)));
  // LMDB reports an incomplete write as EIO.
  const auto* const hint = result == EIO ? " (the disk may be full)" : "";
  const auto reason = result > 0 ? explain_refusal(file_, {result, std::generic_category()}) : std::string(mdb_strerror(result));
  throw Error(fmt::format("cannot write {}: {}{}; fix this, and run the same command again to continue", file_.string(), reason, hint));
}

std::unique_ptr<MDB_txn, decltype(&mdb_txn_abort)> LmdbFile::begin(unsigned flags) const {
  MDB_txn* transaction = nullptr;
  require(mdb_txn_begin(environment_.get(), nullptr, flags, &transaction));
  return {transaction, mdb_txn_abort};
}

size_t LmdbFile::num_entries() const {
  MDB_stat status{};
  mdb_env_stat(environment_.get(), &status);
  return status.ms_entries;
}

// The entry stays in the map after the transaction, because nothing is written meanwhile.
std::span<const uint8_t> LmdbFile::find(std::string_view key) const {
  const auto transaction = begin(MDB_RDONLY);
  auto name = as_value(key);
  MDB_val value{};
  const int result = mdb_get(transaction.get(), database_, &name, &value);
  if (result == MDB_NOTFOUND) return {};
  require(result);
  return {static_cast<const uint8_t*>(value.mv_data), value.mv_size};
}

void LmdbFile::reserve(size_t num_bytes, size_t num_entries) {
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

void LmdbFile::append(std::span<const std::pair<std::string, std::string>> entries) {
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

PackWriter::PackWriter(const std::filesystem::path& folder, const PackInfo& info, const data::Dataset& source)
    : writer_(folder, LmdbFile::Access::kWrite), num_samples_(info.num_samples) {
  const auto json = to_json(info);
  const auto labels = labels_of(source);
  const auto names = names_of(source);
  const std::vector<std::pair<std::string, std::string>> entries = {{std::string(kChecksumsKey), checksums_entry(json, labels, names)},
                                                                    {std::string(kInfoKey), json},
                                                                    {std::string(kLabelsKey), labels},
                                                                    {std::string(kNamesKey), names}};
  if (writer_.find(kInfoKey).empty()) {
    writer_.append(entries);
    return;
  }
  for (const auto& [key, value] : entries) {
    if (as_text(writer_.find(key)) == value) continue;
    throw UsageError(fmt::format("{} was begun with other samples or options; continue with the original settings, or remove that folder",
                                 folder.string()));
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
