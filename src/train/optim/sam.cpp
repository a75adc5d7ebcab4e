// Sharpness-aware minimization (Foret et al. 2021): an SGD step with the gradient at w + rho g / ||g||, which approximates the nearby point
// of highest loss; g is the gradient of the first pass over all parameters together.
// With several ranks, each rank perturbs its parameters along the gradient of the whole batch, so the result is that of one process. With
// `perturbation: rank`, as in the paper (m-sharpness), each rank uses the gradient of its own samples, and the first pass needs no
// communication; the parameters then differ between ranks until step() restores the old values. With amp::GradScaler, both losses are
// scaled and only the second gradient is unscaled, because the first one is divided by its norm, which has the same scale. Only the first
// pass updates the running statistics of batch normalisation, because the second one uses the same samples with temporary parameters.

#include "train/optim/sgd.h"
#include "trainer/torch.h"

namespace trainer::optim {
namespace {

enum class Perturbation { kGlobal, kRank };

struct SamOptions : SgdOptions {
  double rho = 0.05;
  Perturbation perturbation = Perturbation::kGlobal;

  void describe(KeyTable& keys) {
    SgdOptions::describe(keys);
    keys.add(
        "rho", rho,
        {.min = 0,
         .doc = "Radius: the second gradient is computed at this distance (2-norm over all parameters together) from the parameters."});
    keys.add_choice(
        "perturbation", perturbation, {{"global", Perturbation::kGlobal}, {"rank", Perturbation::kRank}},
        {.doc =
             "Samples whose gradient gives the direction of the perturbation. global: the whole batch, as in one process; this sends the "
             "gradients twice per step. rank: each rank's own samples, as in the paper; the result then depends on the number of ranks."});
  }
};

class Sam final : public Sgd {
 public:
  Sam(const SamOptions& options, std::vector<ParamGroup> groups)
      : Sgd(options, std::move(groups)), rho_(options.rho), perturbation_(options.perturbation) {
    for (const auto& param : parameters()) originals_.push_back(torch::empty_like(param));
  }

  bool needs_second_pass() const override { return true; }
  bool needs_first_pass_summed() const override { return perturbation_ == Perturbation::kGlobal; }

  void perturb_parameters() override {
    TORCH_CHECK(!is_perturbed_, "Sam::perturb_parameters: called twice since the last step(); call step() after each second pass");
    const torch::NoGradGuard no_grad;
    at::_foreach_copy_(originals_, parameters());
    add_perturbation();
    zero_grad();
    is_perturbed_ = true;
  }

 private:
  void add_perturbation() {
    std::vector<torch::Tensor> params;
    std::vector<torch::Tensor> grads;
    for (const auto& gradients : gather()) {
      params.insert(params.end(), gradients.params.begin(), gradients.params.end());
      grads.insert(grads.end(), gradients.grads.begin(), gradients.grads.end());
    }
    if (grads.empty()) return;
    const auto norm = total_norm(grads);
    at::_foreach_mul_(grads, rho_ / (norm + 1e-12));
    // The gradient of a scaled loss may overflow, and a perturbation by it would make parameters NaN. Without the perturbation, the
    // second pass overflows like the first, and the step is skipped.
    const auto is_not_finite = norm.isfinite().logical_not().to(torch::kFloat32);
    at::_fused_sgd_(params, grads, /*momentum_buffers=*/{}, /*weight_decay=*/0, /*momentum=*/0, /*lr=*/1.0, /*dampening=*/0,
                    /*nesterov=*/false, /*maximize=*/true, /*is_first_step=*/false, /*grad_scale=*/{}, is_not_finite);
  }

  void restore_parameters() override {
    TORCH_CHECK(is_perturbed_, "Sam::step: call perturb_parameters() and do a second pass first");
    at::_foreach_copy_(parameters(), originals_);
    is_perturbed_ = false;
  }

  // False, because steps with this optimizer cannot use a CUDA graph: in a graph, the second pass of a step could not draw the random
  // numbers of the first pass again.
  bool takes_lr_tensors() const override { return false; }

  void add_options(size_t group, state::Dict& options) const override {
    Sgd::add_options(group, options);
    options.add("rho", rho_);
  }

  double rho_;
  Perturbation perturbation_;
  std::vector<torch::Tensor> originals_;  // copies of parameters(), made by perturb_parameters()
  bool is_perturbed_ = false;
};

}  // namespace

void add_sam(OptimizerRegistry& registry) {
  registry.add<SamOptions>("sam", "Sharpness-aware minimization (Foret et al. 2021) with sgd: two passes per step, for flatter minima.",
                           [](const auto& options, auto groups) { return std::make_unique<Sam>(options, std::move(groups)); });
}

}  // namespace trainer::optim
