#pragma once
// The optimizer torch.optim.SGD. The optimizer of sam.cpp derives from it.

#include "train/optim/optimizer.h"
#include "trainer/components.h"

namespace trainer::optim {

// With dampening, a step in which a parameter may get its first update waits for the device, because the host reads `found_inf`.
class Sgd : public Optimizer {
 public:
  Sgd(const SgdOptions& options, std::vector<ParamGroup> groups);
  double base_lr() const override { return options_.lr; }

 protected:
  bool takes_lr_tensors() const override { return options_.dampening == 0; }
  void add_options(size_t group, state::Dict& options) const override;

 private:
  void update(size_t group, const Gradients& gradients, double lr, const std::optional<torch::Tensor>& found_inf) override;
  std::vector<torch::Tensor> first_state(const torch::Tensor& param) const override;
  void load_param_state(size_t group, size_t index, const std::optional<state::View>& view) override;

  SgdOptions options_;
};

}  // namespace trainer::optim
