#include <fmt/format.h>

#include "trainer/error.h"
#include "trainer/state.h"

namespace trainer::state {
namespace {

std::string describe(const Tree& tree) {
  constexpr const char* kNames[] = {"nothing", "a boolean", "an integer", "a number", "a string", "a tensor", "a list", "a dictionary"};
  return kNames[tree.value().index()];
}

}  // namespace

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

}  // namespace trainer::state
