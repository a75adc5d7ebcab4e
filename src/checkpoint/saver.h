#pragma once
// Saving while the training goes on.

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/store.h"
#include "state/tree.h"

namespace trainer::checkpoint {

// What has become of a save.
struct Saved {
  int64_t step = 0;
  std::filesystem::path file;
  std::string error;  // empty: it is on the disk
  uint64_t num_bytes = 0;
  double pause_seconds = 0;  // that the caller of save() was kept
  double write_seconds = 0;  // from then until it was on the disk
};

// Belongs to one thread; has one of its own that writes, at the lowest priority.
class Saver {
 public:
  // `pin_memory`: of the copy, where tensors are on a GPU.
  Saver(Store store, bool pin_memory);
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Begins to prepare memory for a copy of trees like this one, so that the first save() need not.
  void reserve(const state::Tree& tree);
  // Copies the tree's tensors, into memory that is kept for the next time, and begins to write. Waits for what is still being prepared or
  // written.
  void save(const state::Tree& tree, int64_t step, bool is_best);
  // The save that has ended since the last call, if any.
  std::optional<Saved> poll();
  // The same after waiting for the save that is under way.
  std::optional<Saved> finish();

  const Store& store() const { return store_; }

 private:
  class Copy;
  class Worker;

  void write(const state::Tree& copy, bool is_best);

  Store store_;
  std::unique_ptr<Copy> copy_;
  Saved saved_;  // the worker's while it works
  bool is_news_ = false;
  std::unique_ptr<Worker> worker_;  // ends first
};

}  // namespace trainer::checkpoint
