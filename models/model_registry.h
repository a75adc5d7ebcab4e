#pragma once
// The networks that a configuration can name. To add one, add a file in this folder and its name in CMakeLists.txt (docs/extending.md).

#include "trainer/component.h"
#include "trainer/model.h"

namespace trainer::models {

// The options of each network are ModelOptions.
using ModelRegistry = Registry<std::shared_ptr<Model>, const BuildContext&>;

ModelRegistry& model_registry();

// Adds a network, whose constructor takes `design`, its options and the context.
template <class Network, class Options, class... Design>
void add_model(ModelRegistry& registry, const char* name, const char* doc, const Design&... design) {
  registry.add<Options>(name, doc, [design...](const Options& options, const BuildContext& context) {
    return std::make_shared<Network>(design..., options, context);
  });
}

// The layers of the network `layers`. The options of each layer are LayerOptions.
using LayerRegistry = Registry<Layer, const LayerContext&>;

LayerRegistry& layer_registry();

}  // namespace trainer::models
