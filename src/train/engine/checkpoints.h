#pragma once
// Saves a run's state in checkpoints and loads it.

#include <filesystem>
#include <functional>
#include <optional>

#include "checkpoint/saver.h"
#include "train/engine/parts.h"
#include "train/engine/run_state.h"
#include "trainer/events.h"
#include "trainer/task.h"

namespace trainer::engine {

class Checkpoints {
 public:
  // The members are set only on the rank that writes checkpoints.
  struct Target {
    checkpoint::Saver* saver = nullptr;  // null: nothing is written
    // Adds the entries that come from outside the engine.
    std::function<void(state::Dict&)> complete = [](state::Dict&) {};
  };

  // All arguments except `target` must outlive this object. `meter`: the measurements of the open logging interval.
  Checkpoints(Parts& parts, RunState& run, task::TrainMeter& meter, reporting::Sink& reporter, Target target);

  // Loads the parts and the run from a checkpoint, which may have been written by another number of ranks. Must be called on each rank with
  // the same tree. Throws CheckpointError.
  void load(const state::View& view);
  // To be called after load(). If `file` is a checkpoint of this run's own store, creates its links and removes old checkpoints, because a
  // process that was killed after it wrote the file may not have done so. Then returns the event of this checkpoint, with NaN for its
  // unknown durations; returns nullopt for other files. Throws CheckpointError.
  std::optional<reporting::CheckpointEvent> adopt(const std::filesystem::path& file);

  // Collective: saves the run between two steps; the file is written while training continues.
  void save(bool is_best);
  // Whether the current state of the run was saved or loaded.
  bool is_saved() const { return saved_ == run_.progress; }
  // To be called after each step: reports the result of a save when it is available. After the first step, when the optimizer has all its
  // state, starts to reserve the memory that save() needs, while training continues.
  void after_step();
  // Waits for the result of the last save and reports it. Throws CheckpointError if that save failed.
  void finish();

 private:
  state::Dict make_tree(const torch::Tensor& sums) const;
  void report_saved(const checkpoint::Saved& saved);

  Parts& parts_;
  RunState& run_;
  task::TrainMeter& meter_;
  reporting::Sink& reporter_;
  Target target_;
  bool has_reserved_ = false;
  std::optional<Progress> saved_;
  int64_t epoch_of_file_ = 0;  // epoch of the step of the latest save
};

}  // namespace trainer::engine
