#include "run/inspection/layer_table.h"

#include <algorithm>
#include <map>
#include <set>

#include "nn/layers.h"

namespace trainer::inspection {
namespace {

std::string kind_of(const torch::nn::Module& layer) {
  const auto& name = layer.name();
  const auto scope = name.rfind("::");
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

bool is_frozen(const torch::nn::Module& layer) {
  const auto parameters = layer.parameters(/*recurse=*/false);
  return !parameters.empty() && std::ranges::none_of(parameters, [](const torch::Tensor& parameter) { return parameter.requires_grad(); });
}

// `output`: of one sample. A weight of two or more dimensions is that of a convolution or linear layer; each output is the sum of as many
// products as it has values for one output channel.
int64_t flops_of(const torch::nn::Module& layer, const torch::Tensor& output) {
  const auto parameters = layer.named_parameters(/*recurse=*/false);
  const auto buffers = layer.named_buffers(/*recurse=*/false);
  const auto* weight = parameters.contains("weight") ? &parameters["weight"] : buffers.contains("weight") ? &buffers["weight"] : nullptr;
  if (weight == nullptr || weight->dim() < 2) return 0;
  return 2 * output.numel() * (weight->numel() / weight->size(0));
}

}  // namespace

LayerTable make_layer_table(models::Model& model, const torch::Tensor& sample) {
  std::map<const torch::nn::Module*, std::string> names;
  for (const auto& module : model.named_modules("", /*include_self=*/false)) names[module.value().get()] = module.key();
  LayerTable table;
  std::set<const torch::nn::Module*> seen;
  const nn::LayerObserver observer([&](const torch::nn::Module& layer, const torch::Tensor& output) {
    LayerRow row{.name = names[&layer],
                 .kind = kind_of(layer),
                 .output_shape = output.sizes().slice(1).vec(),
                 .num_parameters = 0,
                 .is_frozen = is_frozen(layer),
                 .flops = flops_of(layer, output)};
    if (seen.insert(&layer).second) {
      for (const auto& parameter : layer.parameters(/*recurse=*/false)) row.num_parameters += parameter.numel();
    }
    table.flops += row.flops;
    table.rows.push_back(std::move(row));
  });
  const torch::NoGradGuard no_grad;
  model.eval();
  model.forward(sample);
  model.train();
  for (const auto& parameter : model.parameters()) {
    table.num_parameters += parameter.numel();
    if (parameter.requires_grad()) table.num_trained += parameter.numel();
  }
  return table;
}

}  // namespace trainer::inspection
