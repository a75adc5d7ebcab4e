#pragma once
// Writes one split of a packed data set. What is written stays, so that an interrupted packing continues.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "datasets/lmdb_format.h"

namespace trainer::datasets {

class PackWriter {
 public:
  // Begins, or continues what was begun for the same source and options; throws UsageError that names the first difference if it was
  // another. `source`: its samples are not read. Also throws as LmdbWriter.
  PackWriter(const std::filesystem::path& folder, const PackInfo& info, const data::Dataset& source);

  int64_t num_samples() const { return num_samples_; }
  int64_t num_written() const { return static_cast<int64_t>(writer_.num_entries()) - num_other_entries(kPackVersion) + num_waiting(); }
  // Adds the entry of the next sample. It is on the disk after the next commit(), which this calls now and then.
  void add(std::string entry);
  void commit();

 private:
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }

  LmdbWriter writer_;
  int64_t num_samples_;
  std::vector<std::pair<std::string, std::string>> waiting_;
  size_t num_waiting_bytes_ = 0;
  std::chrono::steady_clock::time_point committed_at_ = std::chrono::steady_clock::now();
};

}  // namespace trainer::datasets
