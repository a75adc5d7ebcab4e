#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/parts.h"

namespace trainer::engine {

// Compares how long the ranks work by themselves. Costs a step a few readings of the clock (on a GPU: events on its stream), and a
// logging interval one small collective.
class StragglerWatch {
 public:
  // Collective. From now on this rank's own work is timed. `ranks`, two or more, outlive it.
  StragglerWatch(const Ranks& ranks, torch::Device device, double ratio);

  // Collective, when `steps_done` steps of the run are done, those since the last call in `seconds`: on rank 0, what is to be said of a
  // rank that the others waited for. Nothing of the first interval, in which memory is allocated and kernels are chosen; those of less
  // than a second are joined to the next, for there the system's scheduler makes any rank slow.
  std::optional<std::string> end_interval(int64_t steps_done, double seconds);

 private:
  const Ranks& ranks_;
  double ratio_;
  std::vector<std::string> processes_;  // by rank
  int64_t steps_judged_ = 0;            // 0: in the first interval
  // Since then, on rank 0.
  std::vector<distributed::OwnSeconds> own_;  // by rank
  double seconds_ = 0;
};

}  // namespace trainer::engine
