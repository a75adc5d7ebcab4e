#include <fmt/format.h>
#include <torch/optim/optimizer.h>

#include <cmath>
#include <limits>
#include <map>

#include "trainer/amp.h"
#include "trainer/error.h"
#include "trainer/torch.h"

namespace trainer::amp {
namespace {

const GradScalerOptions& checked(const GradScalerOptions& options) {
  const auto require = [](bool is_met, const char* member, auto value, const char* range) {
    if (!is_met) throw OptionError(member, fmt::format("is {}; it must be {}", value, range));
  };
  require(options.init_scale > 0 && options.init_scale <= std::numeric_limits<float>::max(), "init_scale", options.init_scale,
          "positive and fit into float32");
  require(options.growth_factor > 1 && std::isfinite(options.growth_factor), "growth_factor", options.growth_factor, "greater than 1");
  require(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor", options.backoff_factor, "between 0 and 1");
  require(options.growth_interval >= 1, "growth_interval", options.growth_interval, "at least 1");
  return options;
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options, torch::Device device)
    : options_(checked(options)),
      scale_(torch::full({}, options.init_scale, torch::dtype(torch::kFloat32).device(device))),
      growth_tracker_(torch::zeros({}, torch::dtype(torch::kInt32).device(device))),
      found_inf_(torch::zeros({}, torch::dtype(torch::kFloat32).device(device))),
      num_skipped_(torch::zeros({}, torch::dtype(torch::kInt64).device(device))) {}

torch::Tensor GradScaler::scale(const torch::Tensor& loss) const { return options_.enabled ? loss * scale_ : loss; }

void GradScaler::unscale(const std::vector<torch::Tensor>& parameters) {
  if (!options_.enabled) return;
  TORCH_CHECK(!is_unscaled_, "GradScaler::unscale: called twice since the last update(); call update() at the end of each step");
  const torch::NoGradGuard no_grad;
  std::map<c10::ScalarType, std::vector<torch::Tensor>> grads_by_dtype;
  for (const auto& param : parameters) {
    const auto& grad = param.grad();
    if (!grad.defined()) continue;
    TORCH_CHECK(grad.scalar_type() != torch::kFloat16,
                "GradScaler::unscale: a gradient has the dtype float16; keep the parameters in float32");
    grads_by_dtype[grad.scalar_type()].push_back(grad);
  }
  TORCH_CHECK(!grads_by_dtype.empty(), "GradScaler::unscale: no parameter has a gradient; call backward() on the scaled loss first");

  found_inf_.zero_();
  // Computed in float64, as in PyTorch, because float32 division can be imprecise on some devices.
  const auto inv_scale = scale_.to(torch::kFloat64).reciprocal().to(torch::kFloat32);
  for (const auto& [dtype, grads] : grads_by_dtype) at::_amp_foreach_non_finite_check_and_unscale_(grads, found_inf_, inv_scale);
  is_unscaled_ = true;
}

const torch::Tensor& GradScaler::found_inf() const {
  TORCH_CHECK(is_unscaled_, "GradScaler::found_inf: call unscale() first in each step");
  return found_inf_;
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  TORCH_CHECK(!has_stepped_,
              "GradScaler::step: called twice since the last update(); call update() after each step, and use a separate GradScaler for "
              "each optimizer");
  has_stepped_ = true;
  if (!is_unscaled_) {
    std::vector<torch::Tensor> parameters;
    for (const auto& group : optimizer.param_groups()) parameters.insert(parameters.end(), group.params().begin(), group.params().end());
    unscale(parameters);
  }
  if (found_inf_.item<float>() != 0) return false;
  optimizer.step();
  return true;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  TORCH_CHECK(is_unscaled_, "GradScaler::update: call unscale() first in each step");
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf_, options_.growth_factor, options_.backoff_factor, options_.growth_interval);
  num_skipped_ += found_inf_.to(torch::kInt64);
  is_unscaled_ = false;
  has_stepped_ = false;
}

int64_t GradScaler::num_skipped() const { return num_skipped_.item<int64_t>(); }

state::Tree GradScaler::state() const {
  state::Dict tree;
  if (!options_.enabled) return tree;
  tree.add("scale", scale_.item<double>());
  tree.add("growth_factor", options_.growth_factor);
  tree.add("backoff_factor", options_.backoff_factor);
  tree.add("growth_interval", options_.growth_interval);
  tree.add("_growth_tracker", growth_tracker_.item<int64_t>());
  tree.add("num_skipped", num_skipped());
  return tree;
}

void GradScaler::load_state(const state::View& view) {
  if (!options_.enabled) return;
  const auto num_skipped = view.find("num_skipped");
  scale_.fill_(view.at("scale").number());
  growth_tracker_.fill_(view.at("_growth_tracker").integer());
  num_skipped_.fill_(num_skipped ? num_skipped->integer() : 0);
  is_unscaled_ = false;
  has_stepped_ = false;
}

}  // namespace trainer::amp
