#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "trainer/component.h"

namespace trainer {

std::vector<std::string> RegistryBase::names() const {
  std::vector<std::string> names;
  for (const auto& component : components_) names.push_back(component.name);
  return names;
}

const Component* RegistryBase::find(const std::string& name) const {
  const auto found = std::ranges::find(components_, name, &Component::name);
  return found == components_.end() ? nullptr : &*found;
}

ComponentConfig RegistryBase::configure(const std::string& name) const { return {name, components_[index_of(name)].make_options()}; }

void RegistryBase::add(Component component) {
  if (find(component.name) != nullptr) {
    throw std::logic_error(fmt::format("two components of the {} registry are named \"{}\"", product_, component.name));
  }
  components_.push_back(std::move(component));
}

size_t RegistryBase::index_of(const std::string& name) const {
  const auto* component = find(name);
  if (component == nullptr) throw std::logic_error(fmt::format("the {} registry has no component \"{}\"", product_, name));
  return static_cast<size_t>(component - components_.data());
}

void RegistryBase::throw_wrong_options(const std::string& name) {
  throw std::logic_error(fmt::format("the options given for \"{}\" are not that component's", name));
}

}  // namespace trainer
