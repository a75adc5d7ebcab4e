#include <ATen/Context.h>
#include <c10/util/StringUtil.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <mutex>

#include "base/text.h"
#include "checkpoint/state/names.h"
#include "trainer/error.h"
#include "trainer/state.h"

namespace trainer::state {
namespace {

// A copy of the tree with the results of `change`, which is called for the tensors in their order.
Tree with_changed_tensors(const Tree& tree, const std::function<torch::Tensor(const torch::Tensor&)>& change) {
  if (const auto* tensor = std::get_if<torch::Tensor>(&tree.value())) return change(*tensor);
  if (const auto* list = std::get_if<List>(&tree.value())) {
    List copy;
    for (const auto& element : *list) copy.push_back(with_changed_tensors(element, change));
    return copy;
  }
  if (const auto* dict = std::get_if<Dict>(&tree.value())) {
    Dict copy;
    for (const auto& item : dict->items()) copy.add(item.key, with_changed_tensors(item.value, change));
    return copy;
  }
  return tree;
}

std::vector<std::pair<std::string, at::Generator>> generators_of(torch::Device device) {
  std::vector<std::pair<std::string, at::Generator>> generators = {{"cpu", at::globalContext().defaultGenerator(torch::kCPU)}};
  if (device.is_cuda()) generators.emplace_back("cuda", at::globalContext().defaultGenerator(device));
  return generators;
}

std::string describe(const Tree& tree) {
  constexpr const char* kNames[] = {"nothing", "a boolean", "an integer", "a number", "a string", "a tensor", "a list", "a dictionary"};
  return kNames[tree.value().index()];
}

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
  with_changed_tensors(tree, [&](const torch::Tensor& tensor) { return tensors.emplace_back(tensor); });
  return tensors;
}

Tree to_cpu(const Tree& tree) {
  return with_changed_tensors(tree, [](const torch::Tensor& tensor) { return tensor.cpu(); });
}

Tree with_tensors(const Tree& tree, const std::vector<torch::Tensor>& tensors) {
  TORCH_CHECK(tensors_of(tree).size() == tensors.size(), "the number of tensors in the tree is not ", tensors.size());
  auto next = tensors.begin();
  return with_changed_tensors(tree, [&](const torch::Tensor&) { return *next++; });
}

View::View(const Tree& tree, std::string source) : View(tree, std::move(source), "") {}

View::View(const Tree& tree, std::string source, std::string path) : tree_(&tree), source_(std::move(source)), path_(std::move(path)) {}

template <typename T>
const T& View::get(const char* expected) const {
  const auto* value = std::get_if<T>(&tree_->value());
  if (value == nullptr) fail(fmt::format("is {}, not {}", describe(*tree_), expected));
  return *value;
}

std::optional<View> View::find(const Key& key) const {
  const auto* tree = get<Dict>("a dictionary").find(key);
  if (tree == nullptr) return std::nullopt;
  return View(*tree, source_, path_.empty() ? to_string(key) : path_ + '.' + to_string(key));
}

View View::at(const Key& key) const {
  const auto view = find(key);
  if (!view) fail(fmt::format("has no \"{}\"", to_string(key)));
  return *view;
}

std::vector<Key> View::keys() const {
  std::vector<Key> keys;
  for (const auto& item : get<Dict>("a dictionary").items()) keys.push_back(item.key);
  return keys;
}

std::vector<View> View::elements() const {
  std::vector<View> elements;
  for (const auto& element : get<List>("a list")) elements.push_back(View(element, source_, fmt::format("{}[{}]", path_, elements.size())));
  return elements;
}

bool View::is_none() const { return std::holds_alternative<std::monostate>(tree_->value()); }

bool View::flag() const { return get<bool>("a boolean"); }

int64_t View::integer() const { return get<int64_t>("an integer"); }

double View::number() const {
  const auto* integer = std::get_if<int64_t>(&tree_->value());
  return integer != nullptr ? static_cast<double>(*integer) : get<double>("a number");
}

const std::string& View::text() const { return get<std::string>("a string"); }

const torch::Tensor& View::tensor() const { return get<torch::Tensor>("a tensor"); }

void View::copy_to(torch::Tensor destination) const {
  const auto& source = tensor();
  if (source.sizes() != destination.sizes() || source.scalar_type() != destination.scalar_type()) {
    fail(fmt::format("is {}, but {} is expected", describe(source), describe(destination)));
  }
  const torch::NoGradGuard no_grad;
  destination.copy_(source);
}

void View::fail(const std::string& what) const {
  throw CheckpointError(path_.empty() ? fmt::format("{}: {}", source_, what) : fmt::format("{}: {}: {}", source_, path_, what));
}

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
  constexpr const char* kFix = "; use the network of the run that saved this state";
  if (!missing.empty()) view.fail(fmt::format("does not contain {}, which the network has{}", list_names(std::move(missing)), kFix));
  if (!unexpected.empty())
    view.fail(fmt::format("contains {}, which the network does not have{}", list_names(std::move(unexpected)), kFix));
  for (const auto& item : state.items()) {
    auto tensor = std::get<torch::Tensor>(item.value.value());
    const auto value = view.at(item.key);
    // The counter of batch normalisation may have a different dtype: LibTorch's Module::to(dtype) converts it, Python's does not.
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

Dict random_state(torch::Device device) {
  Dict states;
  for (auto& [name, generator] : generators_of(device)) {
    const std::lock_guard lock(generator.mutex());
    states.add(name, generator.get_state());
  }
  return states;
}

void load_random_state(const View& view, torch::Device device) {
  for (auto& [name, generator] : generators_of(device)) {
    const auto state = view.at(name);
    const std::lock_guard lock(generator.mutex());
    try {
      generator.set_state(state.tensor().clone());
    } catch (const c10::Error&) {
      state.fail("is not the state of this generator of random numbers");
    }
  }
}

}  // namespace trainer::state
