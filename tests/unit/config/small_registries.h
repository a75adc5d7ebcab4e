#pragma once
// A few components, and experiments that consist of them.

#include <string>
#include <vector>

#include "config/load.h"
#include "trainer/error.h"

namespace trainer::config {

struct NetOptions {
  int64_t num_classes = 10;
  std::string stem = "cifar";
  void describe(KeyTable& keys) {
    keys.add("num_classes", num_classes, {.min = 1, .doc = "Outputs."});
    keys.add("stem", stem, {.doc = "First layers."});
  }
};

struct CropOptions {
  int64_t size = 0;
  std::vector<double> scale{1.0};
  void describe(KeyTable& keys) {
    keys.add("size", size, {.min = 1, .doc = "Edge.", .required = true});
    keys.add("scale", scale, {.min = 0, .min_excluded = true, .doc = "A list."});
  }
};

struct RateOptions {
  double lr = 0.1;
  double momentum = 0.0;
  void describe(KeyTable& keys) {
    keys.add("lr", lr, {.min = 0, .min_excluded = true, .doc = "Learning rate."});
    keys.add("momentum", momentum, {.min = 0, .max = 1, .max_excluded = true, .doc = "Momentum."});
  }
};

// Options with a check that compares two keys.
struct SpanOptions {
  int64_t first = 0;
  int64_t last = 10;
  void describe(KeyTable& keys) {
    keys.add("first", first, {.doc = "Begin."});
    keys.add("last", last, {.doc = "End."});
    keys.refuse("last", [this] { return last < first ? "before dataset.first" : ""; });
    keys.warn("last", [this] { return last == first ? "the same as dataset.first" : ""; });
    keys.warn("first", [this] { return first < 0 ? "below zero" : ""; });
  }
};

struct NoOptions {
  void describe(KeyTable&) {}
};

// The components are never built, so their type is int.
using TestRegistry = Registry<int>;

template <class O>
void add(TestRegistry& registry, const std::string& name) {
  registry.add<O>(name, "A " + name + ".", [](const O&) { return 0; });
}

struct SmallRegistries {
  TestRegistry models{"model"}, layers{"layer"}, datasets{"dataset"}, transforms{"transform"}, batch_transforms{"batch_transform"},
      tasks{"task"}, losses{"loss"}, optimizers{"optimizer"}, lr_schedulers{"lr_scheduler"}, samplers{"sampler"}, sinks{"sink"};

  SmallRegistries() {
    add<NetOptions>(models, "net");
    add<NoOptions>(models, "bare");
    add<NoOptions>(datasets, "data");
    add<SpanOptions>(datasets, "span");
    add<CropOptions>(transforms, "crop");
    add<NoOptions>(transforms, "flip");
    add<NoOptions>(batch_transforms, "mix");
    add<NoOptions>(tasks, "classification");
    add<NoOptions>(tasks, "regression");
    add<NoOptions>(losses, "cross_entropy");
    add<RateOptions>(optimizers, "sgd");
    add<RateOptions>(optimizers, "adamw");
    add<NoOptions>(lr_schedulers, "constant");
    add<NoOptions>(samplers, "shuffled");
    add<RateOptions>(samplers, "rated");
  }
};

inline Registries small_registries() {
  static const SmallRegistries all;
  return {.models = all.models,
          .layers = all.layers,
          .datasets = all.datasets,
          .transforms = all.transforms,
          .batch_transforms = all.batch_transforms,
          .tasks = all.tasks,
          .losses = all.losses,
          .optimizers = all.optimizers,
          .lr_schedulers = all.lr_schedulers,
          .samplers = all.samplers,
          .sinks = all.sinks,
          .monitor = [] { return MonitorChoices{.names = {"validation/top1"}, .default_doc = "the best"}; }};
}

inline constexpr const char* kMinimal = "experiment: small\nmodel: {name: net}\ndataset: {name: data}\ntraining: {epochs: 2}\n";

inline Experiment loaded(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return load_text(text, "x.yaml", overrides, small_registries());
}

inline std::string load_error(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    loaded(text, overrides);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

template <class O>
const O& options_of(const ComponentConfig& component) {
  return dynamic_cast<const O&>(*component.options);
}

}  // namespace trainer::config
