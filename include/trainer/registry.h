#pragma once
// Registration of your own components, which an experiment file can choose by name like the built-in ones. A component consists of a plain
// struct with its options (keys.h) and a function that makes the component from them. Register components before any other use of the
// library, and from one thread: either in a program that then calls trainer::main() (trainer.h), or in a plug-in, a shared library that an
// experiment file names:
//
//   TRAINER_PLUGIN() {  // plugins: [libmine.so]
//     trainer::register_model<MineOptions>("mine", "A network of mine.", [](const MineOptions& options, const auto& context) {
//       return std::make_shared<Mine>(options, context);
//     });
//   }
// Registering a name that already exists throws std::logic_error; in a plug-in it is an error of the experiment.

#include <torch/version.h>

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/component.h"
#include "trainer/dataset.h"
#include "trainer/error.h"
#include "trainer/events.h"
#include "trainer/keys.h"
#include "trainer/model.h"
#include "trainer/nn.h"
#include "trainer/onnx.h"
#include "trainer/optim.h"
#include "trainer/task.h"
#include "trainer/transform.h"
#include "trainer/version.h"

// The versions that a plug-in was built with; the program compares them with its own.
#define TRAINER_PLUGIN_VERSION TRAINER_VERSION " with LibTorch " TORCH_VERSION

// Begins the definition of the function that registers the components of a plug-in. It is called once, after the version was checked.
#define TRAINER_PLUGIN()                                                                                            \
  extern "C" [[gnu::visibility("default")]] const char* trainer_plugin_version() { return TRAINER_PLUGIN_VERSION; } \
  extern "C" [[gnu::visibility("default")]] void trainer_plugin_register()

namespace trainer {

namespace models {
using ModelRegistry = Registry<std::shared_ptr<Model>, const BuildContext&>;
ModelRegistry& model_registry();
// The factories throw UsageError for an input shape that the layer does not support.
using LayerRegistry = Registry<Layer, const LayerContext&>;
LayerRegistry& layer_registry();
}  // namespace models

namespace datasets {
data::DatasetRegistry& dataset_registry();
}  // namespace datasets

// For each kind: `name` is the name in experiment files, `doc` one line for `trainer list`.

template <class Options>
requires std::derived_from<Options, models::ModelOptions>
void register_model(std::string name, std::string doc,
                    std::function<std::shared_ptr<models::Model>(const Options&, const models::BuildContext&)> make) {
  models::model_registry().add<Options>(std::move(name), std::move(doc), std::move(make));
}

// A layer for `model: {name: layers}`. When the network is complete, its trainer::nn::Conv2d and trainer::nn::Linear get initial values;
// `make` must initialise other parameters.
template <class Options>
requires std::derived_from<Options, models::LayerOptions>
void register_layer(std::string name, std::string doc, std::function<models::Layer(const Options&, const models::LayerContext&)> make) {
  models::layer_registry().add<Options>(std::move(name), std::move(doc), std::move(make));
}

// `make` must not read samples; it may list folders and read small index files (DatasetRegistry in trainer/dataset.h).
template <class Options>
void register_dataset(std::string name, std::string doc, std::function<data::DatasetFactory(const Options&)> make) {
  datasets::dataset_registry().add<Options>(std::move(name), std::move(doc), std::move(make));
}

// Transform: a data::ImageTransform or data::ErasingTransform whose options are its own members. The object is copied after its options are
// set.
template <class Transform>
requires std::derived_from<Transform, data::ImageTransform> || std::derived_from<Transform, data::ErasingTransform>
void register_transform(std::string name, std::string doc) {
  data::transform_registry().add<Transform>(std::move(name), std::move(doc), [](const Transform& transform) {
    return data::Transform(std::make_shared<const Transform>(transform));
  });
}

// `make` is also called with default options and a null loss, to get the metrics of the task, even for experiments with other tasks.
template <class Options>
void register_task(std::string name, std::string doc,
                   std::function<std::unique_ptr<task::Task>(const Options&, std::unique_ptr<nn::Loss>)> make) {
  task::task_registry().add<Options>(std::move(name), std::move(doc), std::move(make));
}

// A validation metric of the task classification; every run with this plug-in measures it.
inline void register_metric(task::ClassMetric metric) { task::add_class_metric(std::move(metric)); }

template <class Options>
void register_loss(std::string name, std::string doc, std::function<std::unique_ptr<nn::Loss>(const Options&)> make) {
  nn::loss_registry().add<Options>(std::move(name), std::move(doc), std::move(make));
}

// `make` is also called with an empty list when an experiment is checked, and may be called several times.
template <class Options>
void register_optimizer(std::string name, std::string doc,
                        std::function<std::unique_ptr<optim::Optimizer>(const Options&, std::vector<optim::ParamGroup>)> make) {
  optim::optimizer_registry().add<Options>(std::move(name), std::move(doc), std::move(make));
}

// For logging.sinks. The sink is made on the rank that writes the files of the run, also when a run is resumed.
template <class Options>
void register_sink(std::string name, std::string doc,
                   std::function<std::unique_ptr<reporting::Sink>(const Options&, const reporting::SinkContext&)> make) {
  reporting::sink_registry().add<Options>(std::move(name), std::move(doc), std::move(make));
}

}  // namespace trainer
