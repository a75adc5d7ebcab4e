#pragma once
// Operations on all batch normalisations of a network (trainer/nn.h).

#include <ATen/core/ivalue.h>
#include <torch/types.h>

#include <memory>
#include <utility>
#include <vector>

#include "device/cuda_module.h"
#include "nn/fused_norm/fused_norm.h"
#include "nn/layers.h"
#include "trainer/distributed.h"
#include "trainer/nn.h"

namespace trainer::nn {

// While an object exists, the model's BatchNorm2d layers (trainer/nn.h) do not update their running statistics. LibTorch's layers do, and
// the destructor restores the old values. For another forward pass over a batch that the statistics already include.
class FrozenStatistics {
 public:
  explicit FrozenStatistics(const torch::nn::Module& model);
  ~FrozenStatistics();
  FrozenStatistics(const FrozenStatistics&) = delete;
  FrozenStatistics& operator=(const FrozenStatistics&) = delete;

 private:
  std::vector<BatchNormPtr> layers_;
  // Buffers of LibTorch's layers, and copies of their values, which the destructor restores.
  std::vector<std::pair<torch::Tensor, torch::Tensor>> saved_;
};

// While an object exists, add() increments num_batches_tracked instead of this thread's forward passes, except in layers without a momentum
// and when a layer runs again before add(). On a GPU, add() needs one kernel instead of one per layer.
class BatchCounts : public OfThread<BatchCounts> {
 public:
  // Increments the counters of the layers that have run since the last call.
  void add();

 private:
  friend class BatchNorm2d;
  std::vector<torch::Tensor> counts_;
};

// Whether `module` is a torch::nn::BatchNorm1d, BatchNorm2d or BatchNorm3d.
bool is_libtorch_batch_norm(const torch::nn::Module& module);

// Collective in training if `group` has several ranks: every rank calls forward with its part of the batch, of any size including 0 (on
// CUDA, not 0 on the first rank), and then backward. forward runs one all_gather; backward sums once over the ranks, or not at all if the
// input needs no gradient. Output, gradient of the input and running statistics are those of one rank with the joined batch; the statistics
// are bitwise the same on all ranks. Gradients of weight and bias are sums over this rank's part only. In eval mode the layers behave like
// those of one rank. In training, forward throws UsageError on all ranks if a channel has fewer than two values over all ranks.
NormFactory batch_norms(std::shared_ptr<const distributed::ProcessGroup> group = nullptr);

// Calls use_fused_operator of every BatchNorm2d and SqueezeExcitation below `network`. `cuda`: for a network on a GPU, whose type is
// `device_type`; must outlive the network.
void use_fused_operators(const torch::nn::Module& network, const device::CudaModule* cuda = nullptr,
                         c10::DeviceType device_type = c10::DeviceType::CPU);

// Batch normalisation over the joined batch of all ranks of a process group, like torch.nn.SyncBatchNorm, but also on the CPU. The kernels
// are those of nn/fused_norm or of ATen's batch normalisation on the CPU, and those of Python's SyncBatchNorm on CUDA. Ranks' parts are
// merged in float64 on the CPU and in float32 on CUDA (float64 for a float64 input).

// The state of a layer that one forward pass uses.
struct LayerState {
  std::shared_ptr<const distributed::ProcessGroup> group;
  torch::Tensor running_mean, running_var;
  double batch_weight;
  double eps;
};

// The forward pass in training without nn/fused_norm; see batch_norms(). `layer.group` has several ranks.
torch::Tensor normalise_over_ranks(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, const LayerState& layer);

// Whether `layer` is a batch normalisation over several ranks, including LibTorch's layers that convert_sync_batch_norm() has converted.
bool is_joined(const torch::nn::Module& layer);
// Whether all buffers of a model belong to batch normalisations over the ranks of a group, so that every rank has the same values.
bool has_equal_buffers(const torch::nn::Module& model);

// The following functions compute mean and variance of a batch that is divided among threads and ranks, on the CPU in float64.

// Statistics of each channel of the joined batch, [C]. `count`: values per channel; on the CPU the total of all ranks, on CUDA one int32
// per rank.
struct BatchStatistics {
  torch::Tensor mean, invstd, count;
};

// Joins the moments of the parts of a batch, [parts, 2C + 1]: mean and biased variance of each channel, and the number of values per
// channel. Returns [2C + 1]. Sums are computed in the order of the parts.
torch::Tensor merge_moments(const torch::Tensor& parts);

// Computes the statistics of the group's joined batch from the moments [2C + 1] of this rank's part, and updates the running statistics.
// If `group` is not null: collective, and throws UsageError on all ranks if a channel has fewer than two values; `input_sizes`: for the
// message.
BatchStatistics join_statistics(const torch::Tensor& moments, const torch::Tensor& running_mean, const torch::Tensor& running_var,
                                double batch_weight, double eps, const distributed::ProcessGroup* group, at::IntArrayRef input_sizes);

// Throws UsageError if `count`, the number of values per channel in the joined batch, is less than two.
void check_count(double count, at::IntArrayRef input_sizes, const distributed::ProcessGroup& group);

// Convert a pointer, which may be null, to and from a saved value of an autograd function.
template <class T>
struct Holder : torch::CustomClassHolder {
  explicit Holder(std::shared_ptr<const T> pointer) : held(std::move(pointer)) {}
  std::shared_ptr<const T> held;
};
template <class T>
c10::IValue hold(std::shared_ptr<const T> pointer) {
  return c10::IValue::make_capsule(c10::make_intrusive<Holder<T>>(std::move(pointer)));
}
template <class T>
std::shared_ptr<const T> held(const c10::IValue& value) {
  return c10::static_intrusive_pointer_cast<Holder<T>>(value.toCapsule())->held;
}

}  // namespace trainer::nn
