#pragma once
// Batch normalisation over the batches of all ranks of a group together: torch.nn.SyncBatchNorm, on the CPU too.

#include <memory>
#include <optional>

#include "distributed/process_group.h"
#include "nn/batch_norm.h"

namespace trainer::nn {

// In training, every rank of the group calls forward with its part of the batch, of any size, 0 included, and then backward: one
// all_gather there and one all_reduce here (none where the input needs no gradient). Output, gradient of the input and running statistics
// are those of BatchNorm2d on the joined batch, the statistics with the same bits on all ranks; gradients of weight and bias are the sums
// over this rank's part. In eval mode, and in a group of one, it is BatchNorm2d.
//
// On the CPU sums are float64. On CUDA the kernels are Python's, in float32 unless the input is float64.
class SyncBatchNorm : public BatchNorm2d {
 public:
  SyncBatchNorm(int64_t num_channels, std::shared_ptr<const distributed::ProcessGroup> group, double eps = 1e-5,
                std::optional<double> momentum = 0.1);
  // Throws UsageError, on all ranks, in training when a channel has less than two values over all ranks together.
  torch::Tensor forward(const torch::Tensor& x) override;
  // Whether there is any other rank.
  bool is_joined() const { return group_->size() > 1; }

 private:
  std::shared_ptr<const distributed::ProcessGroup> group_;
};

NormFactory sync_batch_norm(std::shared_ptr<const distributed::ProcessGroup> group);

}  // namespace trainer::nn
