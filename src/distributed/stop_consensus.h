#pragma once

#include <torch/types.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "trainer/distributed.h"

namespace trainer::distributed {

// Lets all ranks stop at the same step when any of them is asked to. Exchanges the requests through shared memory if the group has it,
// because a backend's threads would cost more of a short step; otherwise asynchronously, so that no step waits for the others.
class StopConsensus {
 public:
  // `group`: of all ranks, used only here.
  explicit StopConsensus(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}

  // Collective, once a step: whether any rank passed `requested` in this call (without shared memory: in the previous call); the same
  // answer on all ranks. A group of one sees its own request immediately.
  bool any_requested(bool requested);
  // Collective: waits for the exchange that the last call started. Call before the group is shut down.
  void finish();

 private:
  std::shared_ptr<ProcessGroup> group_;
  torch::Tensor requests_;
  c10::intrusive_ptr<c10d::Work> pending_;
};

}  // namespace trainer::distributed
