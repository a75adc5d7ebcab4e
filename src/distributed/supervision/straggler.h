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

// Times are in seconds within one interval; `others` is the median of the other ranks.
struct Straggler {
  struct Work {
    double own = 0;
    double others = 0;
    double excess() const { return own - others; }
  };

  int rank = 0;
  Work total;
  bool is_by_data = false;  // whether the excess is larger in waiting for data than in computing
  Work part;                // the times of the part with the larger excess
};

// `ranks`: own work of two or more ranks in an interval of `seconds`. The slowest rank is a straggler if its own work takes more than
// `ratio` times as long as the median of the others, and at least a tenth of the interval longer.
std::optional<Straggler> find_straggler(std::span<const distributed::OwnSeconds> ranks, double seconds, double ratio);

// Returns one sentence that includes what to check. `process`: "process 31 on host-a, cuda:0".
std::string to_string(const Straggler& straggler, const std::string& process, int64_t num_steps);

class StragglerDetector {
 public:
  // `world` has two or more ranks, which `ranks` describes in rank order. `ratio`: see find_straggler().
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
