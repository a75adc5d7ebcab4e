// Sharpness-aware minimization (Foret et al. 2021): the gradient of an SGD step is taken at the point of highest loss nearby, w + rho g
// / ||g||, with g the gradient of the first pass over all parameters together.
//
// With several processes, each climbs along the gradient of its own part of the batch, as in the paper (m-sharpness). So the first pass
// needs no synchronisation; the parameters then differ between ranks until step() restores the old values bit for bit, and the gradients of
// the second pass are averaged. Under amp::GradScaler, both losses are scaled and only the second gradient unscaled: the length of the
// first cancels.

#include <torch/torch.h>

#include "optim/sgd.h"

namespace trainer::optim {
namespace {

struct SamOptions final : SgdOptions {
  double rho = 0.05;

  void describe(config::KeyTable& keys) override {
    SgdOptions::describe(keys);
    keys.add("rho", rho, {.min = 0, .doc = "How far from the parameters the gradient is taken (2-norm over all of them)."});
  }
};

class Sam final : public Sgd {
 public:
  Sam(const SamOptions& options, std::vector<ParamGroup> groups) : Sgd(options, std::move(groups)), rho_(options.rho) {
    for (const auto& param : parameters()) originals_.push_back(torch::empty_like(param));
  }

  bool needs_second_pass() const override { return true; }

  void ascend() override {
    TORCH_CHECK(!ascended_, "Sam::ascend: called twice since the last step()");
    const torch::NoGradGuard no_grad;
    at::_foreach_copy_(originals_, parameters());
    climb();
    zero_grad();
    ascended_ = true;
  }

 private:
  void climb() {
    std::vector<torch::Tensor> params;
    std::vector<torch::Tensor> grads;
    for (const auto& gradients : gather()) {
      params.insert(params.end(), gradients.params.begin(), gradients.params.end());
      grads.insert(grads.end(), gradients.grads.begin(), gradients.grads.end());
    }
    if (grads.empty()) return;
    const auto norm = total_norm(grads);
    at::_foreach_mul_(grads, rho_ / (norm + 1e-12));
    // The gradient of a scaled loss may have overflowed. NaN parameters would corrupt state that outlives the second pass, such as the
    // statistics of batch normalisation. Without a climb, the second pass overflows like the first and the step is skipped.
    const auto is_not_finite = norm.isfinite().logical_not().to(torch::kFloat32);
    at::_fused_sgd_(params, grads, /*momentum_buffers=*/{}, /*weight_decay=*/0, /*momentum=*/0, /*lr=*/1.0, /*dampening=*/0,
                    /*nesterov=*/false, /*maximize=*/true, /*is_first_step=*/false, /*grad_scale=*/{}, is_not_finite);
  }

  void descend() override {
    TORCH_CHECK(ascended_, "Sam::step: ascend() and a second pass come before it");
    at::_foreach_copy_(parameters(), originals_);
    ascended_ = false;
  }

  void add_options(size_t group, state::Dict& options) const override {
    Sgd::add_options(group, options);
    options.add("rho", rho_);
  }

  double rho_;
  std::vector<torch::Tensor> originals_;  // of parameters(), since ascend()
  bool ascended_ = false;
};

}  // namespace

void add_sam(OptimizerRegistry& registry) {
  registry.add<SamOptions>("sam", "Sharpness-aware minimization (Foret et al. 2021) over sgd: two passes a step, for flatter minima.",
                           [](const auto& options, auto groups) { return std::make_unique<Sam>(options, std::move(groups)); });
}

}  // namespace trainer::optim
