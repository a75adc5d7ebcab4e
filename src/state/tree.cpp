#include <c10/util/StringUtil.h>

#include <algorithm>

#include "trainer/state.h"

namespace trainer::state {
namespace {

void collect_tensors(const Tree& tree, std::vector<torch::Tensor>& tensors) {
  if (const auto* tensor = std::get_if<torch::Tensor>(&tree.value())) {
    tensors.push_back(*tensor);
  } else if (const auto* list = std::get_if<List>(&tree.value())) {
    for (const auto& element : *list) collect_tensors(element, tensors);
  } else if (const auto* dict = std::get_if<Dict>(&tree.value())) {
    for (const auto& item : dict->items()) collect_tensors(item.value, tensors);
  }
}

Tree replace_tensors(const Tree& tree, std::vector<torch::Tensor>::const_iterator& next) {
  if (std::holds_alternative<torch::Tensor>(tree.value())) return *next++;
  if (const auto* list = std::get_if<List>(&tree.value())) {
    List copy;
    for (const auto& element : *list) copy.push_back(replace_tensors(element, next));
    return copy;
  }
  if (const auto* dict = std::get_if<Dict>(&tree.value())) {
    Dict copy;
    for (const auto& item : dict->items()) copy.add(item.key, replace_tensors(item.value, next));
    return copy;
  }
  return tree;
}

}  // namespace

Dict::Dict() = default;
Dict::~Dict() = default;
Dict::Dict(const Dict& other) = default;
Dict::Dict(Dict&& other) noexcept = default;
Dict& Dict::operator=(const Dict& other) = default;
Dict& Dict::operator=(Dict&& other) noexcept = default;

void Dict::add(Key key, Tree value) { items_.push_back({std::move(key), std::move(value)}); }

const Tree* Dict::find(const Key& key) const {
  const auto item = std::ranges::find(items_, key, &Item::key);
  return item == items_.end() ? nullptr : &item->value;
}

std::string to_string(const Key& key) {
  const auto* name = std::get_if<std::string>(&key);
  return name != nullptr ? *name : std::to_string(std::get<int64_t>(key));
}

std::string describe(const torch::Tensor& tensor) { return c10::str(tensor.scalar_type(), tensor.sizes()); }

std::vector<torch::Tensor> tensors_of(const Tree& tree) {
  std::vector<torch::Tensor> tensors;
  collect_tensors(tree, tensors);
  return tensors;
}

Tree to_cpu(const Tree& tree) {
  auto tensors = tensors_of(tree);
  for (auto& tensor : tensors) tensor = tensor.cpu();
  return with_tensors(tree, tensors);
}

Tree with_tensors(const Tree& tree, const std::vector<torch::Tensor>& tensors) {
  auto next = tensors.begin();
  auto copy = replace_tensors(tree, next);
  TORCH_CHECK(next == tensors.end(), "the tree has fewer tensors than ", tensors.size());
  return copy;
}

}  // namespace trainer::state
