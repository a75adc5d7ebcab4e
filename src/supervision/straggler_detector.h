#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "distributed/rank_info.h"

namespace trainer::supervision {

// Compares how long the ranks work by themselves. Costs a step a few readings of the clock (on a GPU: events on its stream), and a
// logging interval one small collective.
class StragglerDetector {
 public:
  // From now on `activity` times this rank's own work on `device`. `world`: two ranks or more; `ranks`: who they are, by rank. A rank is
  // slow when it works more than `ratio` times as long as the others.
  StragglerDetector(std::shared_ptr<distributed::ProcessGroup> world, std::shared_ptr<distributed::Activity> activity,
                    std::vector<distributed::RankInfo> ranks, torch::Device device, double ratio);

  // Collective, when `steps_done` steps of the run are done, those since the last call in `seconds`: on rank 0, a description of a rank
  // that the others waited for, if there is one. Nothing of the first interval, in which memory is allocated and kernels are chosen; those
  // of less than a second are joined to the next, for there the system's scheduler makes any rank slow.
  std::optional<std::string> end_interval(int64_t steps_done, double seconds);

 private:
  const std::shared_ptr<distributed::ProcessGroup> world_;
  const std::shared_ptr<distributed::Activity> activity_;
  const std::vector<distributed::RankInfo> ranks_;
  const double ratio_;
  int64_t steps_compared_ = 0;  // 0: in the first interval
  // Since then, on rank 0.
  std::vector<distributed::OwnSeconds> own_;  // by rank
  double seconds_ = 0;
};

}  // namespace trainer::supervision
