#include "engine/non_finite_guard.h"

#include <map>
#include <utility>

namespace trainer::engine {
namespace {

void copy_all(const std::vector<torch::Tensor>& to, const std::vector<torch::Tensor>& from) {
  const torch::NoGradGuard no_grad;
  at::_foreach_copy_(to, from);
}

}  // namespace

NonFiniteGuard::NonFiniteGuard(Parts& parts, task::TrainMeter& meter)
    : parts_(parts),
      meter_(meter),
      non_finite_step_(torch::full({}, -1, torch::dtype(torch::kInt64).device(parts.placement.device))),
      non_finite_scale_(torch::zeros({}, torch::dtype(torch::kFloat32).device(parts.placement.device))),
      finite_losses_(torch::zeros({}, torch::dtype(torch::kFloat32).device(parts.placement.device))) {
  std::map<torch::ScalarType, Buffers> by_type;
  for (const auto& buffer : parts.model->buffers()) {
    auto& buffers = by_type[buffer.scalar_type()];
    buffers.of_model.push_back(buffer);
    buffers.saved.push_back(torch::empty_like(buffer));
  }
  for (auto& [type, buffers] : by_type) buffers_.push_back(std::move(buffers));
}

void NonFiniteGuard::begin_step(int64_t step) {
  step_ = step;
  meter_.mark();
  for (const auto& buffers : buffers_) copy_all(buffers.saved, buffers.of_model);
}

torch::Tensor NonFiniteGuard::mark(const torch::Tensor& weighted_loss, const torch::Tensor& loss) {
  const auto value = loss.detach();
  finite_losses_ += value - value;
  return weighted_loss * (finite_losses_ + 1);
}

torch::Tensor NonFiniteGuard::found_inf() {
  const torch::NoGradGuard no_grad;
  const auto& scaler = parts_.grad_scaler;
  const auto found = scaler ? scaler->found_inf() : optim::find_non_finite(parts_.optimizer->parameters());
  // On a CPU, reading the value costs nothing, and it is nearly always 0.
  if (found.is_cpu() && found.item<float>() == 0 && !step()) return found;
  auto is_first = (non_finite_step_ < 0).logical_and(found > 0);
  if (scaler) {
    is_first = is_first.logical_and(scaler->current_scale() <= 1);
    non_finite_scale_ = at::where(is_first, scaler->current_scale(), non_finite_scale_);
  }
  non_finite_step_ = at::where(is_first, step_, non_finite_step_);
  const auto has_counted = non_finite_step_ >= 0;
  if (scaler) {
    // The GradScaler skips this one step and lowers the scale; the next loss is looked at anew.
    const auto is_lost = finite_losses_.isnan().logical_and(has_counted.logical_not());
    meter_.rewind_if(is_lost);
    finite_losses_ = finite_losses_.masked_fill(is_lost, 0);
  }
  return at::maximum(found, has_counted.to(torch::kFloat32));
}

std::optional<int64_t> NonFiniteGuard::step() const {
  const auto step = non_finite_step_.item<int64_t>();
  return step < 0 ? std::nullopt : std::optional(step);
}

std::optional<double> NonFiniteGuard::scale() const {
  return parts_.grad_scaler ? std::optional(non_finite_scale_.item<double>()) : std::nullopt;
}

bool NonFiniteGuard::had_non_finite_loss() const { return finite_losses_.isnan().item<bool>(); }

void NonFiniteGuard::undo() {
  meter_.rewind();
  for (const auto& buffers : buffers_) copy_all(buffers.of_model, buffers.saved);
  non_finite_step_.fill_(-1);
  finite_losses_.zero_();
}

}  // namespace trainer::engine
