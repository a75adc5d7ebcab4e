#pragma once
// Batch normalisation over the joined batch of all ranks: torch.nn.SyncBatchNorm, also on the CPU.

#include <memory>

#include "trainer/distributed.h"

namespace trainer::nn {

// From now on, each torch::nn::BatchNorm1d, BatchNorm2d and BatchNorm3d in the tree of `module` normalises, in training, the batches of all
// ranks of the group as one batch: torch.nn.SyncBatchNorm.convert_sync_batch_norm(). The modules stay what they are, because a C++ network
// holds its layers in members: their type, parameters, buffers and names do not change. Outputs, gradients and running statistics are those
// of one rank with the joined batch; the statistics have the same bits on all ranks. In evaluation, and in a group of one rank, nothing
// changes.
//
// Collective in training: every rank calls forward with its part of the batch, which may be empty (on a GPU, not the first rank's) but not
// a single value of each channel, which LibTorch's layers refuse on that rank alone, and then backward. forward runs one all_gather,
// backward one all_reduce. If the gradients are exchanged by DistributedDataParallel at the same time, give a group of its own
// (Context::new_group()). The group is not kept: its Context has to outlive the training. Throws UsageError for a layer with neither weight
// nor running statistics.
//
// A layer stays converted after to(), but not after clone() or when its weight is replaced by another tensor. Not for second derivatives,
// nor for torch::InferenceMode in training; layers of torch::jit modules are not converted. `module` itself is converted if it is a batch
// normalisation in a std::shared_ptr.
void convert_sync_batch_norm(torch::nn::Module& module, std::shared_ptr<const distributed::ProcessGroup> group);

}  // namespace trainer::nn
