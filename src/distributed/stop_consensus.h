#pragma once

#include <torch/types.h>

#include <memory>

#include "distributed/process_group.h"

namespace trainer::distributed {

// Lets all ranks stop at the same step when any of them is asked to. Through memory that they share, where the threads of a backend would
// take more of a short step than looking at each other does; else without making a step wait for the others.
class StopConsensus {
 public:
  // `group`: of all ranks, for this alone.
  explicit StopConsensus(std::shared_ptr<ProcessGroup> group);
  ~StopConsensus();
  StopConsensus(const StopConsensus&) = delete;
  StopConsensus& operator=(const StopConsensus&) = delete;

  // Collective, once a step: whether any rank has said `requested` in this call, or, without shared memory, in the one before; the same
  // answer everywhere. A group of one hears itself at once.
  bool any_requested(bool requested);
  // Collective: waits for what the last call has begun. Before the group is shut down.
  void finish();

 private:
  std::shared_ptr<ProcessGroup> group_;
  torch::Tensor requests_;
  c10::intrusive_ptr<c10d::Work> pending_;
};

}  // namespace trainer::distributed
