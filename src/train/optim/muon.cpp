// Muon for the weights of convolutions (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024), and SGD with
// Nesterov momentum for all other parameters, as in Jordan's CIFAR-10 recipe airbench94_muon. torch.optim has had Muon since version 2.9,
// but only for parameters with two dimensions.
// Like torch.optim's, it orthogonalises float32 matrices in bfloat16 on a GPU. On a CPU it uses float32, because most CPUs are slow in
// bfloat16.

#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "train/optim/optimizer.h"
#include "trainer/torch.h"

namespace trainer::optim {
namespace {

struct MuonOptions {
  double lr = 0.02;
  double momentum = 0.95;
  bool nesterov = true;
  int64_t ns_steps = 5;
  bool normalize_weights = false;
  double linear_lr = 0.1;
  double bias_lr = 0.1;
  double sgd_momentum = 0.9;
  double sgd_weight_decay = 0;

  void describe(KeyTable& keys) {
    // Must not be 0: the schedule scales the other learning rates by the ratio of step()'s lr to this one.
    keys.add(
        "lr", lr,
        {.min = 0,
         .min_excluded = true,
         .doc = "Learning rate of the weights of convolutions. The schedule scales it, and linear_lr and bias_lr by the same factor."});
    keys.add(
        "momentum", momentum,
        {.min = 0,
         .max = 1,
         .max_excluded = true,
         .doc = "Fraction of the last update's direction that is kept, before orthogonalisation; only for the weights of convolutions."});
    keys.add("nesterov", nesterov, {.doc = "Use Nesterov's momentum for the weights of convolutions."});
    keys.add(
        "ns_steps", ns_steps,
        {.min = 1,
         .unit = "steps",
         .doc =
             "Number of Newton-Schulz iterations that orthogonalise an update; after 5, most singular values are between 0.68 and 1.21."});
    keys.add("normalize_weights", normalize_weights,
             {.doc = "Before each update, scale the weight of each convolution to the 2-norm sqrt(output channels)."});
    keys.add("linear_lr", linear_lr,
             {.min = 0, .doc = "Learning rate of all other parameters with two or more dimensions, such as the weights of linear layers."});
    keys.add("bias_lr", bias_lr,
             {.min = 0, .doc = "Learning rate of parameters with fewer than two dimensions: biases and normalisation weights."});
    keys.add("sgd_momentum", sgd_momentum,
             {.min = 0,
              .max = 1,
              .max_excluded = true,
              .doc = "Nesterov's momentum for the parameters that linear_lr and bias_lr apply to; 0: plain SGD."});
    keys.add(
        "sgd_weight_decay", sgd_weight_decay,
        {.min = 0,
         .doc =
             "Weight decay of the parameters that linear_lr and bias_lr apply to: the fraction of a parameter that an update at the full "
             "learning rate subtracts, before momentum; no effect if the parameter's learning rate is 0."});
  }
};

// Added to norms, so that zero matrices stay zero instead of becoming NaN.
constexpr double kEpsilon = 1e-7;

// Moves the singular values of matrices, [n, rows, columns], towards 1 and keeps their singular vectors. Each step applies
// a x + b x^3 + c x^5 to the singular values; Jordan et al. chose the coefficients for a steep slope at 0 rather than for convergence to 1.
torch::Tensor orthogonalise(const torch::Tensor& matrices, int64_t num_steps) {
  const bool is_tall = matrices.size(1) > matrices.size(2);  // tall matrices are transposed, because the products are [rows, rows]
  auto x = (is_tall ? matrices.mT() : matrices) / (at::linalg_vector_norm(matrices, 2, {1, 2}, /*keepdim=*/true) + kEpsilon);
  for (int64_t step = 0; step < num_steps; ++step) {
    const auto square = at::bmm(x, x.mT());
    const auto higher_powers = at::baddbmm(square, square, square, /*beta=*/-4.7750, /*alpha=*/2.0315);
    x = at::baddbmm(x, higher_powers, x, /*beta=*/3.4445);
  }
  return is_tall ? x.mT() : x;
}

// Convert the weight of a convolution to a matrix with one row for each output channel, and back. The columns are in memory order, which
// does not affect the orthogonalisation.
torch::Tensor to_matrix(const torch::Tensor& weight) {
  return weight.is_contiguous() ? weight.flatten(1) : weight.permute({0, 2, 3, 1}).flatten(1);
}

torch::Tensor to_weight(const torch::Tensor& matrix, const torch::Tensor& like) {
  if (like.is_contiguous()) return matrix.view(like.sizes());
  return matrix.view({like.size(0), like.size(2), like.size(3), like.size(1)}).permute({0, 3, 1, 2});
}

class Muon final : public Optimizer {
 public:
  Muon(const MuonOptions& options, std::vector<ParamGroup> groups) : Optimizer(std::move(groups), {"momentum_buffer"}), options_(options) {}

  double base_lr() const override { return options_.lr; }

 private:
  std::vector<torch::Tensor> first_state(const torch::Tensor& param) const override {
    return {param.dim() == 4 || options_.sgd_momentum != 0 ? torch::zeros_like(param) : torch::Tensor()};
  }

  void update(size_t group, const Gradients& gradients, double lr, const std::optional<torch::Tensor>& found_inf) override {
    const auto dim = [&](size_t position) { return gradients.params[position].dim(); };
    const double factor = lr / options_.lr;
    const double decay = weight_decay_of(group, options_.sgd_weight_decay);
    run_sgd(gradients.select([&](size_t i) { return dim(i) != 4 && dim(i) >= 2; }), options_.linear_lr, factor, decay, found_inf);
    run_sgd(gradients.select([&](size_t i) { return dim(i) < 2; }), options_.bias_lr, factor, decay, found_inf);
    const auto convolutions = gradients.select([&](size_t i) { return dim(i) == 4; });
    if (!convolutions.params.empty()) change_unless(found_inf, convolutions.changed(), [&] { update_convolutions(convolutions, lr); });
  }

  void update_convolutions(const Gradients& gradients, double lr) const {
    const auto& [params, grads, buffers] = std::tie(gradients.params, gradients.grads, gradients.states[0]);
    at::_foreach_copy_(buffers, at::_foreach_add(grads, buffers, options_.momentum));
    const auto directions = options_.nesterov ? at::_foreach_add(grads, buffers, options_.momentum) : buffers;
    if (options_.normalize_weights) {
      for (const auto& param : params) param.mul_(std::sqrt(static_cast<double>(param.size(0))) / param.norm().clamp_min(kEpsilon));
    }
    at::_foreach_sub_(params, orthogonal_updates(directions), lr);
  }

  // Directions of the same size are orthogonalised together, as one batch of matrices.
  std::vector<torch::Tensor> orthogonal_updates(const std::vector<torch::Tensor>& directions) const {
    std::map<std::pair<int64_t, int64_t>, std::vector<size_t>> by_size;
    for (size_t i = 0; i < directions.size(); ++i) by_size[{directions[i].size(0), directions[i].numel()}].push_back(i);
    std::vector<torch::Tensor> updates(directions.size());
    for (const auto& [size, indices] : by_size) {
      std::vector<torch::Tensor> matrices;
      for (const size_t i : indices) matrices.push_back(to_matrix(directions[i]));
      const auto stacked = at::stack(matrices);
      const bool is_rounded = !stacked.is_cpu() && stacked.scalar_type() == torch::kFloat;
      const auto orthogonal = orthogonalise(is_rounded ? stacked.to(torch::kBFloat16) : stacked, options_.ns_steps);
      // to() writes converted matrices in order; only unconverted ones may still be transposed.
      const auto results =
          orthogonal.to(stacked.scalar_type(), /*non_blocking=*/false, /*copy=*/false, torch::MemoryFormat::Contiguous).contiguous();
      for (size_t k = 0; k < indices.size(); ++k) updates[indices[k]] = to_weight(results[static_cast<int64_t>(k)], directions[indices[k]]);
    }
    return updates;
  }

  void run_sgd(const Gradients& lists, double full_lr, double factor, double decay, const std::optional<torch::Tensor>& found_inf) const {
    if (lists.params.empty()) return;
    const auto buffers = options_.sgd_momentum != 0 ? lists.states[0] : std::vector<torch::Tensor>();
    const double weight_decay = full_lr > 0 ? decay / full_lr : 0;  // the kernel multiplies it by the learning rate
    at::_fused_sgd_(lists.params, lists.grads, buffers, weight_decay, options_.sgd_momentum, full_lr * factor, /*dampening=*/0,
                    /*nesterov=*/options_.sgd_momentum > 0, /*maximize=*/false, /*is_first_step=*/false, /*grad_scale=*/{}, found_inf);
  }

  void add_options(size_t group, state::Dict& options) const override {
    options.add("momentum", options_.momentum);
    options.add("nesterov", options_.nesterov);
    options.add("ns_steps", options_.ns_steps);
    options.add("normalize_weights", options_.normalize_weights);
    options.add("linear_lr", options_.linear_lr);
    options.add("bias_lr", options_.bias_lr);
    options.add("sgd_momentum", options_.sgd_momentum);
    options.add("sgd_weight_decay", weight_decay_of(group, options_.sgd_weight_decay));
  }

  MuonOptions options_;
};

}  // namespace

void add_muon(OptimizerRegistry& registry) {
  registry.add<MuonOptions>("muon", "Muon (Jordan et al. 2024) for the weights of convolutions, SGD for the other parameters.",
                            [](const auto& options, auto groups) { return std::make_unique<Muon>(options, std::move(groups)); });
}

}  // namespace trainer::optim
