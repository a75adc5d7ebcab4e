#pragma once
// Components: parts such as a model, a data set or a loss that an experiment file chooses by name and configures by their own keys. A
// registry contains the components of one kind.
//
//   registry.add<HingeOptions>("hinge", "Hinge loss.", [](const HingeOptions& options) { return make_hinge(options.margin); });
//   auto loss = registry.make(registry.configure("hinge"));

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/error.h"
#include "trainer/keys.h"

namespace trainer {

// The options of any component; use dynamic_cast to access them as their own type or one of its base classes.
class Options {
 public:
  virtual ~Options() = default;
  virtual void add_keys(KeyTable& keys) = 0;
  virtual std::shared_ptr<Options> clone() const = 0;
};

// O: a plain struct with default values, whose describe() binds each member to a key (keys.h).
template <class O>
class OptionsOf : public Options, public O {
 public:
  void add_keys(KeyTable& keys) override { describe(keys, static_cast<O&>(*this)); }
  std::shared_ptr<Options> clone() const override { return std::make_shared<OptionsOf>(*this); }
};

// The component chosen by a file, with its options as set in the file. The options have the type with which the component was registered.
struct ComponentConfig {
  std::string name;
  std::shared_ptr<Options> options;
};

// One entry of a registry.
struct Component {
  std::string name;
  std::string doc;                                         // one line
  std::function<std::unique_ptr<Options>()> make_options;  // with their default values
};

// The names and keys of a registry's components, in the order of registration.
class RegistryBase {
 public:
  // `product`: the kind of the components for messages, such as "model".
  explicit RegistryBase(std::string product) : product_(std::move(product)) {}

  const std::string& product() const { return product_; }
  const std::vector<Component>& components() const { return components_; }
  std::vector<std::string> names() const;
  // The component of this name, or nullptr.
  const Component* find(const std::string& name) const;
  // The component of this name with its default options. Throws std::logic_error for an unknown name.
  ComponentConfig configure(const std::string& name) const;
  // The component whose options are O (trainer/components.h), with these values. Throws UsageError for values that are out of range or
  // contradict each other.
  template <class O>
  requires requires { O::kName; }
  ComponentConfig configure(const O& options) const {
    auto config = configure(std::string(O::kName));
    dynamic_cast<O&>(*config.options) = options;
    check_values(config);
    return config;
  }

 protected:
  // Throws std::logic_error if the name is already registered.
  void add(Component component);
  size_t index_of(const std::string& name) const;

  // The options as type O. Throws std::logic_error if they are of another type or null.
  template <class O>
  static const O& options_of(const ComponentConfig& config) {
    const auto* options = dynamic_cast<const O*>(config.options.get());
    if (options == nullptr) throw_wrong_options(config.name);
    return *options;
  }

 private:
  static void check_values(const ComponentConfig& config);
  [[noreturn]] static void throw_wrong_options(const std::string& name);

  std::string product_;
  std::vector<Component> components_;
};

// The components of one kind, each of which creates a Product from its options and Args.
template <class Product, class... Args>
class Registry : public RegistryBase {
 public:
  using RegistryBase::RegistryBase;

  // O: the component's options, a struct for OptionsOf. Throws std::logic_error if the name is already registered.
  template <class O>
  void add(std::string name, std::string doc, std::function<Product(const O& options, Args... args)> factory) {
    RegistryBase::add({std::move(name), std::move(doc), [] { return std::make_unique<OptionsOf<O>>(); }});
    factories_.push_back([factory = std::move(factory)](const ComponentConfig& config, Args... args) {
      return factory(options_of<O>(config), std::forward<Args>(args)...);
    });
  }

  // `config` must come from configure() or from a key that names this registry; throws std::logic_error otherwise. Errors of the factory
  // are passed on, such as UsageError for options that contradict each other.
  Product make(const ComponentConfig& config, Args... args) const {
    return factories_[index_of(config.name)](config, std::forward<Args>(args)...);
  }

 private:
  std::vector<std::function<Product(const ComponentConfig& config, Args... args)>> factories_;  // in the order of components()
};

}  // namespace trainer
