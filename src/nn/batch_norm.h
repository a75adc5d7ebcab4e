#pragma once
// Batch normalisations of a network (trainer/nn.h) as a whole. Networks create their norm layers through a NormFactory and do not depend on
// the kind: local (this file) or synchronised across ranks (nn/sync_batch_norm.h).

#include <utility>
#include <vector>

#include "nn/fused_norm/fused_norm.h"
#include "trainer/nn.h"

namespace trainer::nn {

// While it exists, batches do not update the running statistics of the model's batch normalisations: for another pass over a batch that
// they have counted already.
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

// Whether it is a torch::nn::BatchNorm1d, BatchNorm2d or BatchNorm3d.
bool is_libtorch_batch_norm(const torch::nn::Module& module);

NormFactory local_batch_norm();

// Calls BatchNorm2d::use_fused_operator of every batch normalisation below `network`.
void use_fused_norm(const torch::nn::Module& network);

}  // namespace trainer::nn
