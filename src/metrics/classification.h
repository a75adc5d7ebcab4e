#pragma once
// Sums and counts of a training interval or a validation, kept on the device: nothing here waits for it until read(). Sums are reduced
// over the ranks, never means.

#include <torch/torch.h>

#include <optional>
#include <vector>

#include "distributed/process_group.h"
#include "state/view.h"

namespace trainer::metrics {

struct Scores {
  int64_t num_samples = 0;
  double loss = 0;             // mean over the samples
  std::optional<double> top1;  // fraction; only for losses with classes
  std::optional<double> top5;  // only with five classes or more
  // Of a validation with classes: [actual][predicted], row after row, and the mean over the classes of their F1 scores. Classes that
  // neither occur nor were predicted are left out of the mean.
  std::vector<int64_t> confusion = {};
  std::optional<double> macro_f1 = {};
};

// Of training: losses and hits since the last reset.
class ScoreMeter {
 public:
  // `has_classes`: targets are labels, so count top1 hits.
  ScoreMeter(torch::Device device, bool has_classes);
  // `loss`: mean over the batch's `size` samples, a scalar tensor. `outputs` [size, K], `targets` as in nn::Loss. Of classes with
  // equal outputs the first is top1. A batch of size 0 adds nothing.
  void add(const torch::Tensor& loss, const torch::Tensor& outputs, const torch::Tensor& targets, int64_t size);
  // Collective: over all ranks of `group`. Waits for the device. With num_samples 0 the other scores are 0 too.
  Scores read(const distributed::ProcessGroup& group) const;
  void reset();
  // Forgets what was added since the last mark().
  void mark();
  void rewind();
  // This rank's sums, copied to the CPU; waits for the device.
  state::Tree state() const;
  // Throws CheckpointError.
  void load_state(const state::View& view);

 private:
  bool has_classes_;
  torch::Tensor sums_;    // float64 [3] on the device: loss, top1 hits, samples
  torch::Tensor marked_;  // their values at the last mark
};

// Of a validation whose batches are dealt whole to the ranks: the same digits for any number of them, since counts are integers and the
// batches' losses are kept apart until they are added in the batches' order.
class ValidationMeter {
 public:
  // `num_classes` 0: targets are no labels. `num_batches`: of all ranks together.
  ValidationMeter(torch::Device device, int64_t num_classes, int64_t num_batches);
  // As ScoreMeter's, for batch `number` of the validation set.
  void add(int64_t number, const torch::Tensor& loss, const torch::Tensor& outputs, const torch::Tensor& targets, int64_t size);
  // Collective: over all ranks of `group`, once. Waits for the device.
  Scores read(const distributed::ProcessGroup& group);

 private:
  int64_t num_classes_;
  torch::Tensor loss_sums_;  // float64 [num_batches]
  torch::Tensor counts_;     // int64 [2]: samples, top5 hits
  torch::Tensor confusion_;  // int64 [num_classes, num_classes]
};

}  // namespace trainer::metrics
