#include "datasets/lmdb_format.h"

#include <fmt/format.h>
#include <libdeflate.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "base/file.h"
#include "base/little_endian.h"
#include "base/text.h"
#include "datasets/lmdb_reader.h"
#include "trainer/error.h"

namespace trainer::datasets {
namespace {

constexpr const char* kFormat = "trainer packed data set";

// The header: the checksum, what the entry holds, the order of pixels, channels, height and width of pixels.
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

// The CRC-32 of all that follows it, since version 2 preceded by the index of the sample, so that one entry is not taken for another.
uint32_t checksum_of(const StoredEntry& entry) {
  std::string index;
  if (entry.version > 1) little_endian::append(index, static_cast<uint64_t>(entry.index));
  const auto rest = entry.bytes.subspan(kKindOffset);
  return libdeflate_crc32(libdeflate_crc32(0, index.data(), index.size()), rest.data(), rest.size());
}

void check_size(const StoredEntry& entry) {
  const auto size = entry.bytes.size();
  if (size < kHeaderBytes) throw std::runtime_error(fmt::format("it is damaged: its entry has only {}", counted(size, "byte")));
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
  // The names of folders are not always UTF-8.
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

PackInfo parse_pack_info(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    if (json.at("format") != kFormat) throw std::runtime_error("it is not a data set of `trainer data pack`");
    PackInfo info;
    info.version = json.at("version");
    if (info.version < 1 || info.version > kPackVersion) {
      throw std::runtime_error(
          fmt::format("it has version {} of the format, but this program reads versions up to {}", info.version, kPackVersion));
    }
    info.source = json.at("source");
    info.num_samples = json.at("num_samples");
    info.samples.shape = json.at("shape").get<std::vector<int64_t>>();
    info.samples.num_classes = json.at("num_classes");
    info.samples.class_names = json.at("class_names").get<std::vector<std::string>>();
    info.options.raw = json.at("raw");
    if (!json.at("resize").is_null()) info.options.resize = json.at("resize").get<int64_t>();
    info.transforms = {.train = json.at("train_transforms"), .validation = json.at("validation_transforms")};
    const auto& samples = info.samples;
    const bool names_fit = samples.class_names.empty() || static_cast<int64_t>(samples.class_names.size()) == samples.num_classes;
    if (info.num_samples < 1 || samples.shape.size() != 3 || samples.num_classes < 1 || !names_fit) {
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

int64_t num_other_entries(int version) { return version == 1 ? 3 : 4; }

std::string file_entry(std::span<const uint8_t> file) { return make_entry(Kind::kFile, {}, as_text(file)); }

std::string pixels_entry(const data::ImageView& image) {
  const auto num_bytes = static_cast<size_t>(image.channels) * static_cast<size_t>(image.height) * static_cast<size_t>(image.width);
  return make_entry(Kind::kPixels, image, as_text({image.pixels, num_bytes}));
}

std::string unreadable_entry(std::string_view reason) { return make_entry(Kind::kUnreadable, {}, reason); }

void finish_entry(std::string& entry, int64_t index) {
  const std::span bytes(reinterpret_cast<const uint8_t*>(entry.data()), entry.size());
  std::string checksum;
  little_endian::append(checksum, checksum_of({.bytes = bytes, .index = index, .version = kPackVersion}));
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
        throw std::runtime_error("it is damaged: its size is not that of its pixels");
      }
      sample.image =
          data::ImageView::whole(content.data(), static_cast<int>(channels), static_cast<int>(height), static_cast<int>(width), order);
      return sample;
    }
    case Kind::kUnreadable:
      compare_checksum(stored);
      throw std::runtime_error(std::string(as_text(content)));
    default:
      throw std::runtime_error("it is damaged: its entry is of no known kind");
  }
}

namespace {

namespace fs = std::filesystem;

// The owner sees to it that one process writes.
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

// LMDB's library does not survive every damage.
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
  // LMDB's word for a write that was cut short.
  const auto* const hint = result == EIO ? " (the disk may be full)" : "";
  const auto reason = result > 0 ? explain_refusal(file_, {result, std::generic_category()}) : std::string(mdb_strerror(result));
  throw Error(fmt::format("cannot write {}: {}{}; once this is remedied, the same command continues", file_.string(), reason, hint));
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
  // An entry begins and ends within a page, and may need one of the tree; LMDB writes anew those pages of the tree that change.
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

}  // namespace trainer::datasets
