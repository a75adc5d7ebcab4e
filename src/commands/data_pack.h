#pragma once

#include <CLI/CLI.hpp>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "config/experiment.h"
#include "data/dataset.h"
#include "data/transforms/transform.h"
#include "datasets/lmdb_file.h"
#include "trainer/error.h"

namespace trainer::commands {

struct PackArguments {
  std::filesystem::path output;
  datasets::PackOptions options;
};

// Adds --output, --raw and --resize.
void add_pack_options(CLI::App& app, PackArguments& arguments);

// Copies the training and validation samples of the experiment's data set into the folder `output`, or continues an interrupted copy, and
// compares all checksums. Throws UsageError, DataError naming a sample that cannot be read (dataset.on_error: fail), and Error, with
// ExitCode::kStopped after a stop request.
void pack(const config::Experiment& experiment, const PackArguments& arguments, int num_threads);

// Prepares the entries of a packed data set in several threads, a few ahead, and returns them in the order of the samples.
class EntryQueue {
 public:
  // Begins with sample `begin`. `source` must outlive the queue.
  EntryQueue(const data::Dataset& source, const datasets::PackOptions& options, int64_t begin, int num_threads);
  ~EntryQueue();

  // The entry of the next sample, which must exist. Rethrows the exception of its preparation: std::runtime_error with only the reason if
  // the sample cannot be read.
  std::string next();

 private:
  struct Slot {
    int64_t index = -1;  // of the sample that is ready
    std::string entry;
    std::exception_ptr error;
  };

  Slot& slot_of(int64_t index) { return slots_[static_cast<size_t>(index) % slots_.size()]; }
  void work();

  const data::Dataset& source_;
  datasets::PackOptions options_;
  std::shared_ptr<const data::ImageTransform> resize_;  // null: keep the sizes
  std::vector<Slot> slots_;
  std::mutex mutex_;               // guards the members below and the slots' indices
  std::condition_variable work_;   // a slot is free, or the threads must stop
  std::condition_variable ready_;  // an entry is ready
  int64_t num_taken_;
  int64_t next_;
  bool stopping_ = false;
  std::vector<std::jthread> threads_;
};

// The transform `resize` that makes the shorter edge `size` pixels long; null if `size` is not set.
std::shared_ptr<const data::ImageTransform> make_resize(std::optional<int64_t> size);

}  // namespace trainer::commands
