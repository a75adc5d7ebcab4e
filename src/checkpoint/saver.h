#pragma once
// Saves checkpoints in the background while training continues.

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/store.h"
#include "trainer/state.h"

namespace trainer::checkpoint {

// The result of a save, successful or not.
struct Saved {
  int64_t step = 0;
  std::filesystem::path file;
  std::string error;  // empty: the file is on the disk
  uint64_t num_bytes = 0;
  std::vector<std::filesystem::path> removed;  // older checkpoints
  double pause_seconds = 0;                    // time for which save() blocked its caller
  double write_seconds = 0;                    // time from the end of save() until the file was on the disk
};

// Not thread-safe. Writes on a background thread of the lowest priority.
class Saver {
 public:
  // `pin_memory`: whether tensors on a GPU are copied to pinned memory.
  Saver(Store store, bool pin_memory);
  ~Saver();

  // Starts to allocate memory for the first save().
  void reserve(const state::Tree& tree);
  // Copies the tree's tensors into memory that later calls reuse, and starts to write the copy. First waits for the previous call.
  void save(const state::Tree& tree, int64_t step, bool is_best);
  // The result of the save that has finished since the last call, if any.
  std::optional<Saved> poll();
  // Waits for the save in progress, then returns the same as poll().
  std::optional<Saved> finish();

  // Must not be called while a save is in progress.
  Store& store() { return store_; }

 private:
  class Copy;

  // Runs `work` on a thread of the lowest priority. Must be called after wait().
  void start(std::function<void()> work);
  void wait() const;
  void write(const state::Tree& copy, bool is_best);

  Store store_;
  std::unique_ptr<Copy> copy_;
  Saved saved_;                 // while a save is in progress, used only by the writing thread
  bool is_unreported_ = false;  // whether finish() has yet to return saved_
  std::future<void> work_;      // declared last: its destructor waits, before the other members are destroyed
};

}  // namespace trainer::checkpoint
