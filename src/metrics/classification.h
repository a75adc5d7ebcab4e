#pragma once
// Sums and counts of a training interval or a validation, kept on the device: nothing here waits for it until read().

#include <torch/torch.h>

#include <optional>

namespace trainer::metrics {

struct Scores {
  int64_t num_samples = 0;
  double loss = 0;             // mean over the samples
  std::optional<double> top1;  // fraction; only for losses with classes
  std::optional<double> top5;  // only with five classes or more
};

class ScoreMeter {
 public:
  // `has_classes`: targets are labels, so count top1 and (when `with_top5`, which needs five classes) top5 hits.
  ScoreMeter(torch::Device device, bool has_classes, bool with_top5);
  // `loss`: mean over the batch's `size` samples, a scalar tensor. `outputs` [size, K], `targets` as in nn::Loss. Of classes with
  // equal outputs the first is top1. A batch of size 0, whose mean loss is NaN, adds nothing.
  void add(const torch::Tensor& loss, const torch::Tensor& outputs, const torch::Tensor& targets, int64_t size);
  // Waits for the device. With num_samples 0 the other scores are 0 too.
  Scores read() const;
  void reset();

 private:
  bool has_classes_;
  bool with_top5_;
  int64_t num_samples_ = 0;
  torch::Tensor loss_sum_;  // float64 scalar
  torch::Tensor hits_;      // int64 [2]: top1, top5
};

}  // namespace trainer::metrics
