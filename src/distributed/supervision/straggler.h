#pragma once
// Finds a rank that is slower than the others, which wait for it.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "distributed/activity.h"
#include "distributed/rendezvous.h"
#include "trainer/distributed.h"

namespace trainer::supervision {

// Describes the slowest rank, with what to check, if its own work takes more than `ratio` times as long as the median of the others and at
// least a tenth of the interval longer. `own`: work of two or more `ranks` in an interval of `seconds` and `num_steps` steps.
std::optional<std::string> describe_straggler(std::span<const distributed::OwnSeconds> own, std::span<const distributed::RankInfo> ranks,
                                              double seconds, double ratio, int64_t num_steps);

class StragglerDetector {
 public:
  // `world` has two or more ranks, which `ranks` describes in rank order. `ratio`: see describe_straggler().
  StragglerDetector(std::shared_ptr<distributed::ProcessGroup> world, std::shared_ptr<distributed::Activity> activity,
                    std::vector<distributed::RankInfo> ranks, torch::Device device, double ratio);

  // Collective. `steps_done`: number of steps that the run has completed; `seconds`: duration of the steps since the last call. On rank 0,
  // returns a description of the straggler, if any. Ignores the first interval, in which memory is allocated and kernels are chosen, and
  // merges an interval of less than a second with the next one, because the system's scheduler can make any rank slow for so short a time.
  std::optional<std::string> end_interval(int64_t steps_done, double seconds);

 private:
  const std::shared_ptr<distributed::ProcessGroup> world_;
  const std::shared_ptr<distributed::Activity> activity_;
  const std::vector<distributed::RankInfo> ranks_;
  const double ratio_;
  int64_t steps_compared_ = 0;  // 0: in the first interval
  // Sums since step steps_compared_, on rank 0.
  std::vector<distributed::OwnSeconds> own_;  // by rank
  double seconds_ = 0;
};

}  // namespace trainer::supervision
