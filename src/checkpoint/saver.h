#pragma once
// Saves checkpoints while the training continues.

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

// The result of a save.
struct Saved {
  int64_t step = 0;
  std::filesystem::path file;
  std::string error;  // empty: the file is on the disk
  uint64_t num_bytes = 0;
  std::vector<std::filesystem::path> removed;  // older checkpoints
  double pause_seconds = 0;                    // how long save() blocked its caller
  double write_seconds = 0;                    // from then until the file was on the disk
};

// Not thread-safe: one thread calls it. Writes in a background thread of the lowest priority.
class Saver {
 public:
  // `pin_memory`: whether the copies of tensors on a GPU are in pinned memory.
  Saver(Store store, bool pin_memory);
  ~Saver();

  // Starts to allocate memory for a copy of trees like this one, so that the first save() does not have to.
  void reserve(const state::Tree& tree);
  // Copies the tree's tensors into memory that later calls reuse, and starts to write the copy to the disk. First waits until the
  // previous reserve() or save() has finished.
  void save(const state::Tree& tree, int64_t step, bool is_best);
  // Returns the save that has finished since the last call, if any, without waiting.
  std::optional<Saved> poll();
  // The same, after waiting for the save in progress.
  std::optional<Saved> finish();

  // Not while a save is in progress.
  Store& store() { return store_; }

 private:
  class Copy;

  // Runs `work` in a thread of the lowest priority. Only after wait().
  void start(std::function<void()> work);
  void wait() const;
  void write(const state::Tree& copy, bool is_best);

  Store store_;
  std::unique_ptr<Copy> copy_;
  Saved saved_;                 // used only by the thread that writes, while it does
  bool is_unreported_ = false;  // whether finish() has yet to return saved_
  std::future<void> work_;      // declared last: its destructor waits, before the other members are destroyed
};

}  // namespace trainer::checkpoint
