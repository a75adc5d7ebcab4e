#include "metrics/classification.h"

namespace trainer::metrics {
namespace {

constexpr int64_t kTop = 5;

double divide(double sum, double count) { return count == 0 ? 0 : sum / count; }

double macro_f1(const torch::Tensor& confusion) {
  const auto hits = confusion.diagonal().to(torch::kFloat64);
  // 2 hits / (actual + predicted), the harmonic mean of precision and recall.
  const auto seen = (confusion.sum(0) + confusion.sum(1)).to(torch::kFloat64);
  const auto occurs = seen > 0;
  return divide((2 * hits / seen.clamp_min(1)).masked_select(occurs).sum().item<double>(), occurs.sum().item<double>());
}

}  // namespace

ScoreMeter::ScoreMeter(torch::Device device, bool has_classes)
    : has_classes_(has_classes), sums_(torch::zeros({3}, torch::TensorOptions(device).dtype(torch::kFloat64))) {}

void ScoreMeter::add(const torch::Tensor& loss, const torch::Tensor& outputs, const torch::Tensor& targets, int64_t size) {
  if (size == 0) return;
  const torch::NoGradGuard no_grad;
  sums_[0].add_(loss.to(torch::kFloat64), size);
  if (has_classes_) sums_[1].add_(outputs.argmax(1).eq(targets).sum());
  sums_[2].add_(size);
}

Scores ScoreMeter::read(const distributed::ProcessGroup& group) const {
  const auto sums = sums_.clone();
  group.all_reduce(sums);
  const auto host = sums.cpu();
  const auto* values = host.const_data_ptr<double>();
  Scores scores;
  scores.num_samples = static_cast<int64_t>(values[2]);
  scores.loss = divide(values[0], values[2]);
  if (has_classes_) scores.top1 = divide(values[1], values[2]);
  return scores;
}

void ScoreMeter::reset() { sums_.zero_(); }
void ScoreMeter::mark() { marked_ = sums_.clone(); }
void ScoreMeter::rewind() { sums_.copy_(marked_); }
state::Tree ScoreMeter::state() const { return sums_.to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true); }
void ScoreMeter::load_state(const state::View& view) { view.copy_to(sums_); }

ValidationMeter::ValidationMeter(torch::Device device, int64_t num_classes, int64_t num_batches) : num_classes_(num_classes) {
  const torch::TensorOptions on_device(device);
  loss_sums_ = torch::zeros({num_batches}, on_device.dtype(torch::kFloat64));
  counts_ = torch::zeros({2}, on_device.dtype(torch::kInt64));
  confusion_ = torch::zeros({num_classes, num_classes}, on_device.dtype(torch::kInt64));
}

void ValidationMeter::add(int64_t number, const torch::Tensor& loss, const torch::Tensor& outputs, const torch::Tensor& targets,
                          int64_t size) {
  const torch::NoGradGuard no_grad;
  loss_sums_[number] = loss.to(torch::kFloat64) * size;
  counts_[0].add_(size);
  if (num_classes_ == 0) return;
  const auto cells = targets * num_classes_ + outputs.argmax(1);
  confusion_.view(-1).scatter_add_(0, cells, torch::ones_like(cells));
  if (num_classes_ >= kTop) counts_[1].add_(std::get<1>(outputs.topk(kTop, 1)).eq(targets.unsqueeze(1)).sum());
}

Scores ValidationMeter::read(const distributed::ProcessGroup& group) {
  // Every batch is one rank's: the others add zeros to it.
  for (const auto& tensor : {loss_sums_, counts_, confusion_}) {
    if (tensor.numel() > 0) group.all_reduce(tensor);
  }
  const auto losses = loss_sums_.cpu();
  const auto counts = counts_.cpu();
  const auto num_samples = static_cast<double>(counts[0].item<int64_t>());
  Scores scores;
  scores.num_samples = counts[0].item<int64_t>();
  double sum = 0;
  for (int64_t i = 0; i < losses.numel(); ++i) sum += losses.const_data_ptr<double>()[i];
  scores.loss = divide(sum, num_samples);
  if (num_classes_ == 0) return scores;
  const auto confusion = confusion_.cpu();
  const auto* cells = confusion.const_data_ptr<int64_t>();
  scores.confusion.assign(cells, cells + confusion.numel());
  scores.top1 = divide(static_cast<double>(confusion.trace().item<int64_t>()), num_samples);
  if (num_classes_ >= kTop) scores.top5 = divide(static_cast<double>(counts[1].item<int64_t>()), num_samples);
  scores.macro_f1 = macro_f1(confusion);
  return scores;
}

}  // namespace trainer::metrics
