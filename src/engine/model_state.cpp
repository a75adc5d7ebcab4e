#include "engine/model_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace trainer::engine {
namespace {

constexpr size_t kMostNames = 8;

std::string list_names(std::vector<std::string> names) {
  const size_t num_more = names.size() - std::min(names.size(), kMostNames);
  names.resize(names.size() - num_more);
  return join(names, ", ") + (num_more > 0 ? fmt::format(" and {} more", num_more) : "");
}

}  // namespace

std::vector<std::pair<std::string, torch::Tensor>> named_state(const torch::nn::Module& model) {
  std::vector<std::pair<std::string, torch::Tensor>> state;
  for (const auto& module : model.named_modules(/*name_prefix=*/"")) {
    const auto prefix = module.key().empty() ? "" : module.key() + '.';
    for (const auto& parameter : module.value()->named_parameters(/*recurse=*/false)) {
      state.emplace_back(prefix + parameter.key(), parameter.value());
    }
    for (const auto& buffer : module.value()->named_buffers(/*recurse=*/false)) state.emplace_back(prefix + buffer.key(), buffer.value());
  }
  return state;
}

state::Dict model_state(const torch::nn::Module& model) {
  state::Dict dict;
  for (const auto& [name, tensor] : named_state(model)) dict.add(name, tensor.detach());
  return dict;
}

void load_model_state(torch::nn::Module& model, const state::View& view) {
  const auto state = named_state(model);
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  for (const auto& [name, tensor] : state) {
    if (!view.find(name)) missing.push_back(name);
  }
  for (const auto& key : view.keys()) {
    const auto name = state::to_string(key);
    if (std::ranges::find(state, name, &std::pair<std::string, torch::Tensor>::first) == state.end()) unexpected.push_back(name);
  }
  if (!missing.empty()) view.fail("the network also has " + list_names(missing));
  if (!unexpected.empty()) view.fail("the network does not have " + list_names(unexpected));
  for (const auto& [name, tensor] : state) view.at(name).copy_to(tensor.detach());
}

}  // namespace trainer::engine
