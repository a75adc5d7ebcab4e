#include "distributed/stop_consensus.h"

#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "distributed/first_line.h"
#include "trainer/error.h"

namespace trainer::distributed {

bool StopConsensus::any_requested(bool requested) {
  const auto& group = group_->c10d_group();
  if (!group) return requested;
  if (group_->shares_memory()) {
    const auto requests = torch::full({1}, requested ? 1 : 0, torch::kInt32);
    group_->sum_in_rank_order({&requests, 1});
    return requests.item<int32_t>() > 0;
  }
  finish();
  const bool agreed = requests_.defined() && requests_.item<int32_t>() > 0;
  requests_ = torch::full({1}, requested || agreed ? 1 : 0, torch::kInt32);
  std::vector<torch::Tensor> tensors{requests_};
  pending_ = group->allreduce(tensors);
  return agreed;
}

void StopConsensus::finish() {
  if (!pending_) return;
  const Activity::Wait wait(group_->activity().get());
  try {
    pending_->wait();
  } catch (const std::exception& error) {
    rethrow_own_error(error);
    throw PeerError(fmt::format("rank {} lost the connection to another rank: {}", group_->rank(), first_line(error)));
  }
  pending_.reset();
}

}  // namespace trainer::distributed
