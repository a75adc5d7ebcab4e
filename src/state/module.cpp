#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "state/names.h"
#include "trainer/state.h"

namespace trainer::state {
namespace {

constexpr size_t kMostNames = 8;

std::string list_names(std::vector<std::string> names) {
  const size_t num_more = names.size() - std::min(names.size(), kMostNames);
  names.resize(names.size() - num_more);
  return join(names, ", ") + (num_more > 0 ? fmt::format(" and {} more", num_more) : "");
}

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

void load_state_of(torch::nn::Module& module, const View& view) {
  const auto state = state_of(module);
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  for (const auto& item : state.items()) {
    if (!view.find(item.key)) missing.push_back(to_string(item.key));
  }
  for (const auto& key : view.keys()) {
    if (state.find(key) == nullptr) unexpected.push_back(to_string(key));
  }
  if (!missing.empty()) view.fail("the network also has " + list_names(std::move(missing)));
  if (!unexpected.empty()) view.fail("the network does not have " + list_names(std::move(unexpected)));
  for (const auto& item : state.items()) {
    auto tensor = std::get<torch::Tensor>(item.value.value());
    const auto value = view.at(item.key);
    // The counter of batch normalisation: LibTorch's Module::to(dtype) converts it, Python's does not.
    const bool is_counter = to_string(item.key).ends_with("num_batches_tracked") && value.tensor().sizes() == tensor.sizes();
    if (is_counter) {
      tensor.copy_(value.tensor());
    } else {
      value.copy_to(tensor);
    }
  }
}

bool is_in(std::string_view entry, const std::vector<std::string>& names) {
  return std::ranges::any_of(
      names, [&](std::string_view name) { return entry.starts_with(name) && (entry.size() == name.size() || entry[name.size()] == '.'); });
}

}  // namespace trainer::state
