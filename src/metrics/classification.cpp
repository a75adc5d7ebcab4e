#include "metrics/classification.h"

namespace trainer::metrics {

ScoreMeter::ScoreMeter(torch::Device device, bool has_classes, bool with_top5)
    : has_classes_(has_classes),
      with_top5_(has_classes && with_top5),
      loss_sum_(torch::zeros({}, torch::TensorOptions(device).dtype(torch::kFloat64))),
      hits_(torch::zeros({2}, torch::TensorOptions(device).dtype(torch::kInt64))) {}

void ScoreMeter::add(const torch::Tensor& loss, const torch::Tensor& outputs, const torch::Tensor& targets, int64_t size) {
  if (size == 0) return;  // a mean over nothing is NaN
  const torch::NoGradGuard no_grad;
  num_samples_ += size;
  loss_sum_.add_(loss.to(torch::kFloat64), size);
  if (has_classes_) hits_[0].add_(outputs.argmax(1).eq(targets).sum());
  if (with_top5_) hits_[1].add_(std::get<1>(outputs.topk(5, 1)).eq(targets.unsqueeze(1)).sum());
}

Scores ScoreMeter::read() const {
  const auto per_sample = [this](double sum) { return num_samples_ == 0 ? 0 : sum / static_cast<double>(num_samples_); };
  const auto hits = hits_.cpu();
  Scores scores;
  scores.num_samples = num_samples_;
  scores.loss = per_sample(loss_sum_.item<double>());
  if (has_classes_) scores.top1 = per_sample(static_cast<double>(hits[0].item<int64_t>()));
  if (with_top5_) scores.top5 = per_sample(static_cast<double>(hits[1].item<int64_t>()));
  return scores;
}

void ScoreMeter::reset() {
  num_samples_ = 0;
  loss_sum_.zero_();
  hits_.zero_();
}

}  // namespace trainer::metrics
