#pragma once
// Batch normalisation over the joined batch of all ranks of a process group, like torch.nn.SyncBatchNorm, but also on the CPU.

#include <memory>

#include "nn/batch_norm.h"
#include "trainer/distributed.h"

namespace trainer::nn {

// Collective in training: every rank of the group calls forward with its part of the batch, of any size including 0 (on CUDA, not 0 on the
// first rank), and then backward. forward runs one all_gather; backward sums once over the ranks, or not at all if the input needs no
// gradient. Output, gradient of the input and running statistics are those of BatchNorm2d on the joined batch; the statistics are bitwise
// the same on all ranks. Gradients of weight and bias are sums over this rank's part only. In eval mode, and in a group of one rank, the
// layer behaves like BatchNorm2d. In training, forward throws UsageError on all ranks if a channel has fewer than two values over all
// ranks.
//
// The kernels are those of nn/fused_norm or of ATen's batch normalisation on the CPU, and those of Python's SyncBatchNorm on CUDA. Ranks'
// parts are merged in float64 on the CPU and in float32 on CUDA (float64 for a float64 input).
class SyncBatchNorm : public BatchNorm2d {
 public:
  SyncBatchNorm(int64_t num_channels, std::shared_ptr<const distributed::ProcessGroup> group, const BatchNormOptions& options = {});

  // Whether the group has more than one rank.
  bool is_joined() const { return group_->size() > 1; }

 protected:
  std::shared_ptr<const distributed::ProcessGroup> joined_group() const override { return is_joined() ? group_ : nullptr; }
  torch::Tensor normalise(const torch::Tensor& x) override;

 private:
  std::shared_ptr<const distributed::ProcessGroup> group_;
};

// Whether `layer` is a batch normalisation over several ranks, including LibTorch's layers that convert_sync_batch_norm() has converted.
bool is_joined(const torch::nn::Module& layer);
// Whether all buffers of a model belong to batch normalisations over the ranks of a group, so that every rank has the same values.
bool has_equal_buffers(const torch::nn::Module& model);

NormFactory sync_batch_norm(std::shared_ptr<const distributed::ProcessGroup> group);

}  // namespace trainer::nn
