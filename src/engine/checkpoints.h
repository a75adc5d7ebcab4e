#pragma once
// A run's checkpoints: what is in them, and how it gets there and back.

#include <functional>
#include <optional>

#include "checkpoint/saver.h"
#include "engine/parts.h"
#include "engine/run_state.h"
#include "reporting/events.h"
#include "task/meters.h"

namespace trainer::engine {

class Checkpoints {
 public:
  // On the rank that writes them.
  struct Target {
    checkpoint::Saver* saver = nullptr;  // null: nothing is written
    // Adds what the engine does not know.
    std::function<void(state::Dict&)> complete = [](state::Dict&) {};
  };

  // The other arguments must outlive it. `meter`: of the open logging interval.
  Checkpoints(Parts& parts, RunState& run, task::TrainMeter& meter, reporting::Sink& reporter, Target target);

  // Makes the parts and the run those of a checkpoint, which other ranks, in another number, may have written. Each rank calls it with
  // the same tree. Throws CheckpointError.
  void load(const state::View& view);

  // Collective: saves the run as it stands between two steps; the file is written beside the training.
  void save(bool is_best);
  // Whether the run as it stands was saved, or has been loaded.
  bool is_saved() const { return saved_ == run_.progress; }
  // After each step: tells the reporter what has become of a save, if that is known by now. After the first one, when the optimizer has
  // all its state, it prepares for save(), beside the training.
  void after_step();
  // The same after waiting for it. Throws CheckpointError when the run as it stands could not be saved.
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
};

}  // namespace trainer::engine
