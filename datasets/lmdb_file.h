#pragma once
// Packed data sets, with an LMDB environment for each split: their entries, reading and writing. docs/packed_data.md describes the entries
// for other programs.

#include <lmdb.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "datasets/dataset_registry.h"

namespace trainer::datasets {

// The subfolders of the splits, and the file that exists until the data set is complete.
inline constexpr const char* kPackedTrain = "train";
inline constexpr const char* kPackedValidation = "val";
inline constexpr const char* kUnfinished = "unfinished";

// The keys of entries that are not samples. They sort before the keys of the samples.
inline constexpr std::string_view kChecksumsKey = "#checksums";  // the CRC-32 of each of the three entries below
inline constexpr std::string_view kInfoKey = "#info";            // a PackInfo as JSON
// Little-endian 64-bit integers; float32 values for any number of classes; float64 values for numbers.
inline constexpr std::string_view kLabelsKey = "#labels";
inline constexpr std::string_view kNamesKey = "#names";  // the names of the samples in the source; each ends with '\0'
inline constexpr int64_t kNumOtherEntries = 4;
// The number of bytes of one of the values of a sample in the entry #labels, and of all of them.
int64_t num_value_bytes(const data::DatasetInfo& samples);
int64_t num_target_bytes(const data::DatasetInfo& samples);
inline constexpr int64_t kPackVersion = 1;  // of the format
// Such as "00000017": at least eight digits, the same number for each sample.
std::string sample_key(int64_t index, int64_t num_samples);

inline std::string_view as_text(std::span<const uint8_t> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Options of packing.
struct PackOptions {
  bool raw = false;               // whether to store pixels even if the source has image files
  std::optional<int64_t> resize;  // the shorter edge to which larger images are resized
};

// The properties of all samples of a split.
struct PackInfo {
  std::string source = {};  // dataset.name of the source
  int64_t num_samples = 0;
  data::DatasetInfo samples;
  data::DefaultTransforms transforms = {};  // of the source
  std::string folder = {};                  // the prefix of all names; the rest of a name is the sample's key
  PackOptions options = {};
};
std::string to_json(const PackInfo& info);
// Throws std::runtime_error with only the reason.
PackInfo parse_pack_info(std::string_view json);

// The entry #checksums.
std::string checksums_entry(std::string_view info, std::string_view labels, std::string_view names);

// Makes a sample's entry: an image file, pixels, or the reason why the source's sample cannot be read. finish_entry() must be called
// afterwards.
std::string file_entry(std::span<const uint8_t> file);
// `image`: a whole image without mirroring.
std::string pixels_entry(const data::ImageView& image);
std::string unreadable_entry(std::string_view reason);

// Writes the checksum into the entry of the sample.
void finish_entry(std::string& entry, int64_t index);

// The entry of a sample as it is stored.
struct StoredEntry {
  std::span<const uint8_t> bytes;
  int64_t index;
};
// Throws std::runtime_error with only the reason if the checksum is wrong, or if the entry is that of another sample.
void check_entry(const StoredEntry& entry);
// The image file or the pixels, as views into the bytes. The checksum is compared, but not for pixels: this would add a fifth to the time
// in which training prepares a sample. Throws std::runtime_error with only the reason: damage, or why the source's sample could not be
// read.
data::Sample read_entry(const StoredEntry& entry);

std::filesystem::path lmdb_file(const std::filesystem::path& folder);

// An LMDB environment, which is a folder with a file data.mdb. Its map is shared by all processes of a host. It is opened without LMDB's
// own lock file: an unfinished data set has its own lock, and the file of a finished one must not be written.
class LmdbFile {
 public:
  enum class Access { kRead, kWrite };

  // Checks all pages of the file's trees, because LMDB's library may crash on a damaged file. To write, creates the folder and the
  // environment if they do not exist. Throws std::runtime_error with the file and the reason, to write also with what to do.
  LmdbFile(const std::filesystem::path& folder, Access access);

  size_t num_entries() const;
  // The entry of this key, in the map until the next append(); empty if there is none. Thread-safe.
  std::span<const uint8_t> find(std::string_view key) const;
  // Adds all of the entries or none, and returns when they are on the disk. Keys must be in ascending order, also across calls. Throws
  // Error with the file, the reason and what to do.
  void append(std::span<const std::pair<std::string, std::string>> entries);

 private:
  // Makes the map large enough for `num_entries` more entries with `num_bytes` in total.
  void reserve(size_t num_bytes, size_t num_entries);
  // Throws if `result` is not MDB_SUCCESS.
  void require(int result) const;
  // A transaction that is aborted unless it is released.
  std::unique_ptr<MDB_txn, decltype(&mdb_txn_abort)> begin(unsigned flags) const;

  std::filesystem::path file_;
  Access access_;
  std::unique_ptr<MDB_env, decltype(&mdb_env_close)> environment_{nullptr, mdb_env_close};
  MDB_dbi database_ = 0;
};

// Writes one split of a packed data set. An interrupted packing can be continued.

class PackWriter {
 public:
  // Begins a packing, or continues one; throws UsageError if its source or options differ. Does not read the samples of `source`. Also
  // throws like LmdbFile.
  PackWriter(const std::filesystem::path& folder, const PackInfo& info, const data::Dataset& source);

  int64_t num_samples() const { return num_samples_; }
  int64_t num_written() const { return static_cast<int64_t>(writer_.num_entries()) - kNumOtherEntries + num_waiting(); }
  // Adds the entry of the next sample. It is on the disk after the next commit(), which this function calls regularly.
  void add(std::string entry);
  void commit();

 private:
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }

  LmdbFile writer_;
  int64_t num_samples_;
  std::vector<std::pair<std::string, std::string>> waiting_;
  size_t num_waiting_bytes_ = 0;
  std::chrono::steady_clock::time_point committed_at_ = std::chrono::steady_clock::now();
};

}  // namespace trainer::datasets
