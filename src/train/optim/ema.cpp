#include "train/optim/ema.h"

#include <map>

#include "trainer/state.h"

namespace trainer::optim {

Ema::Ema(const torch::nn::Module& model, const EmaOptions& options) : model_(model), options_(options), params_(model.parameters()) {
  for (const auto& param : params_) averages_.push_back(param.detach().clone());
  num_updates_ = torch::zeros({}, torch::TensorOptions(params_.at(0).device()).dtype(torch::kInt64));
}

// The weight of the parameters in the next update of the average.
torch::Tensor Ema::next_weight() const {
  const auto n = num_updates_.to(torch::kFloat64);
  const auto weight = (options_.warmup ? 9 / (9 + n) : (n == 0).to(torch::kFloat64)).clamp_min(1 - options_.decay);
  // The dtype that the fused kernels require for a learning rate.
  return weight.to(num_updates_.is_cpu() ? torch::kFloat64 : torch::kFloat32);
}

void Ema::update(const std::optional<torch::Tensor>& found_inf) {
  const torch::NoGradGuard no_grad;
  // Computes average += weight * (parameter - average) in one kernel that respects found_inf: SGD with maximize, the parameters as
  // gradients and a weight decay of 1.
  at::_fused_sgd_(averages_, params_, /*momentum_buffer_list=*/{}, /*weight_decay=*/1, /*momentum=*/0, /*lr=*/next_weight(),
                  /*dampening=*/0, /*nesterov=*/false, /*maximize=*/true, /*is_first_step=*/false, /*grad_scale=*/{}, found_inf);
  num_updates_ += 1;
  if (found_inf) num_updates_ -= found_inf->to(torch::kInt64);
}

void Ema::swap() {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < params_.size(); ++i) {
    const auto values = params_[i].detach();
    params_[i].set_data(averages_[i]);
    averages_[i] = values;
  }
}

state::Tree Ema::state() const {
  const auto params = model_.named_parameters();
  std::map<std::string, torch::Tensor> averages;
  for (size_t i = 0; i < averages_.size(); ++i) averages[params[i].key()] = averages_[i];
  const auto model_state = state::state_of(model_);
  state::Dict tree;
  tree.add("n_averaged", num_updates_);
  for (const auto& item : model_state.items()) {
    const auto name = state::to_string(item.key);
    const auto average = averages.find(name);
    tree.add("module." + name, average == averages.end() ? item.value : average->second);
  }
  return tree;
}

void Ema::load_state(const state::View& view) {
  view.at("n_averaged").copy_to(num_updates_);
  const auto params = model_.named_parameters();
  for (size_t i = 0; i < averages_.size(); ++i) view.at("module." + params[i].key()).copy_to(averages_[i]);
}

}  // namespace trainer::optim
