#include "state/module.h"

namespace trainer::state {
namespace {

void add_state(const torch::nn::Module& module, const std::string& prefix, Dict& state) {
  const auto add = [&](const torch::OrderedDict<std::string, torch::Tensor>& tensors) {
    for (const auto& item : tensors) state.add(prefix + item.key(), item.value().detach());
  };
  add(module.named_parameters(/*recurse=*/false));
  add(module.named_buffers(/*recurse=*/false));
  for (const auto& child : module.named_children()) add_state(*child.value(), prefix + child.key() + '.', state);
}

}  // namespace

Dict state_of(const torch::nn::Module& module) {
  Dict state;
  add_state(module, "", state);
  return state;
}

}  // namespace trainer::state
