// Networks whose layers are listed in an experiment file (docs/networks.md), and the layers that contain others.

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/keys/key.h"
#include "models/blocks.h"
#include "models/model_registry.h"

namespace trainer::models {
namespace {

using Components = std::vector<ComponentConfig>;
using Shape = std::vector<int64_t>;

std::string shape_text(const Shape& shape) {
  return shape.size() == 1 ? fmt::format("{} features", shape[0]) : fmt::format("{}", fmt::join(shape, "x"));
}

void check_size(const Shape& shape) {
  constexpr int64_t kMostValues = int64_t{1} << 32;
  int64_t num_values = 1;
  for (const auto size : shape) {
    if (size < 1) throw UsageError(fmt::format("has an empty output of {}; choose other sizes", shape_text(shape)));
    if (size > kMostValues / num_values)
      throw UsageError(fmt::format("has an output of {}, which is too large; choose smaller sizes", shape_text(shape)));
    num_values *= size;
  }
}

// Errors name `path`.
Layer make_layer(const ComponentConfig& config, const LayerContext& context, const std::string& path) {
  try {
    auto layer = layer_registry().make(config, context);
    check_size(layer.output_shape);
    return layer;
  } catch (const OptionError& error) {
    throw OptionError(path + '.' + error.member(), error.problem());
  } catch (const UsageError& error) {
    throw OptionError(path, error.what());
  }
}

const std::string& name_of(const ComponentConfig& config) { return dynamic_cast<const LayerOptions&>(*config.options).name; }

// The name of the next layer of `parent`: `given`, or the number of the layer if `given` is empty. Throws OptionError for an invalid name.
std::string child_name(const std::string& given, const torch::nn::Module& parent, const std::string& path) {
  constexpr size_t kMostLayers = 2000;
  const auto earlier = parent.named_children();
  if (earlier.size() == kMostLayers)
    throw OptionError(path, fmt::format("the list has more than {} layers; use fewer repetitions", kMostLayers));
  const auto name = given.empty() ? std::to_string(earlier.size()) : given;
  const auto is_word = [](char c) { return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (!std::ranges::all_of(name, is_word)) {
    throw OptionError(path + ".name", fmt::format("\"{}\" is not a valid layer name; use letters, digits and _", name));
  }
  if (earlier.contains(name)) {
    throw OptionError(given.empty() ? path : path + ".name",
                      fmt::format("an earlier layer has the name {} too; choose another name", name));
  }
  return name;
}

void require_layers(const Components& layers, const std::string& key) {
  if (layers.empty()) throw OptionError(key, "is empty; list some layers");
}

struct RepeatOptions : LayerOptions {
  int64_t times = 0;
  Components layers = {};

  void describe(KeyTable& keys) {
    keys.add("times", times, {.min = 1, .max = 1000, .doc = "Number of repetitions.", .required = true});
    keys.add_components("layers", layers, layer_registry(), "The layers to repeat; each repetition has its own parameters.");
    LayerOptions::describe(keys);
  }
};

Shape add_repeated(LayerChain& chain, const RepeatOptions& repeat, const LayerContext& context, const std::string& key, bool is_repeated);

// Makes the layers of a list and adds them to `chain`; the layers of an unnamed `repeat` are added to `chain` too.
// Returns the output shape of the last layer.
Shape add_layers_to(LayerChain& chain, const Components& layers, const LayerContext& context, const std::string& key,
                    bool is_repeated = false) {
  auto shape = context.input_shape;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto& config = layers[i];
    const LayerContext of_layer{context.build, shape, context.num_outputs};
    const auto path = fmt::format("{}[{}].{}", key, i, config.name);
    const auto& given = name_of(config);
    const auto* repeat = dynamic_cast<const RepeatOptions*>(config.options.get());
    if (repeat != nullptr && given.empty()) {
      shape = add_repeated(chain, *repeat, of_layer, path + ".layers", is_repeated);
      continue;
    }
    if (!given.empty() && is_repeated) {
      throw OptionError(path + ".name", "all repetitions of the layer would have this name; move the name to `repeat`, or remove it");
    }
    const auto name = child_name(given, chain, path);
    auto layer = make_layer(config, of_layer, path);
    shape = std::move(layer.output_shape);
    chain.add(name, std::move(layer.module), /*has_maps=*/shape.size() == 3);
  }
  return shape;
}

Shape add_repeated(LayerChain& chain, const RepeatOptions& repeat, const LayerContext& context, const std::string& key, bool is_repeated) {
  require_layers(repeat.layers, key);
  auto shape = context.input_shape;
  for (int64_t time = 0; time < repeat.times; ++time) {
    shape =
        add_layers_to(chain, repeat.layers, {context.build, std::move(shape), context.num_outputs}, key, is_repeated || repeat.times > 1);
  }
  return shape;
}

// Combines the layers of a list into one.
Layer make_chain(const Components& layers, const LayerContext& context, const std::string& key) {
  auto chain = std::make_shared<LayerChain>();
  auto shape = add_layers_to(*chain, layers, context, key);
  return {torch::nn::AnyModule(chain), std::move(shape)};
}

struct SequenceOptions : LayerOptions {
  Components layers = {};

  void describe(KeyTable& keys) {
    keys.add_components("layers", layers, layer_registry(), "The layers, in sequence.");
    LayerOptions::describe(keys);
  }
};

struct ResidualOptions : LayerOptions {
  Components body = {};
  Auto<Components> shortcut = {};
  double drop_path = 0;

  void describe(KeyTable& keys) {
    keys.add_components("body", body, layer_registry(), "Layers whose output is added to the output of the shortcut.");
    keys.add_components(
        "shortcut", shortcut, layer_registry(),
        "Layers whose output is added to the output of body. []: the input itself. auto: the input itself if body keeps the "
        "shape, otherwise a 1x1 convolution with the stride of body and a normalisation.");
    describe_drop_path(keys, drop_path, kDropPathOfLayer);
    LayerOptions::describe(keys);
  }
};

class Residual : public torch::nn::Module {
 public:
  Residual(torch::nn::AnyModule body, torch::nn::AnyModule shortcut, double drop_path, const at::Generator& generator)
      : body_(std::move(body)), shortcut_(std::move(shortcut)) {
    register_module("body", body_.ptr());
    register_module("shortcut", shortcut_.ptr());
    drop_path_ = register_module("drop_path", std::make_shared<nn::DropPath>(drop_path, generator));
  }
  torch::Tensor forward(const torch::Tensor& x) { return drop_path_->forward(body_.forward(x)) + shortcut_.forward(x); }

 private:
  torch::nn::AnyModule body_, shortcut_;
  std::shared_ptr<nn::DropPath> drop_path_;
};

Layer make_shortcut(const LayerContext& context, const Shape& shape) {
  auto chain = std::make_shared<LayerChain>();
  if (shape != context.input_shape) {
    const auto& input = context.input_shape;
    if (shape.size() != 3 || input.size() != 3) {
      throw UsageError(
          fmt::format("its body has the output {} for the input {}, for which there is no automatic shortcut; set the `shortcut` layers",
                      shape_text(shape), shape_text(input)));
    }
    const auto stride = std::max((input[1] + shape[1] - 1) / shape[1], (input[2] + shape[2] - 1) / shape[2]);
    const auto convolved = slide(context, shape[0], 1, stride, 0);
    if (convolved != shape) {
      throw UsageError(
          fmt::format("its body has the output {} for the input {}, which an automatic shortcut cannot produce with any stride; set the "
                      "`shortcut` layers",
                      shape_text(shape), shape_text(input)));
    }
    chain->add("0", torch::nn::AnyModule(nn::conv1x1(input[0], shape[0], stride)));
    chain->add("1", torch::nn::AnyModule(context.build.norm(shape[0])));
  }
  return {torch::nn::AnyModule(chain), shape};
}

Layer make_residual(const ResidualOptions& options, const LayerContext& context) {
  require_layers(options.body, "body");
  auto body = make_chain(options.body, context, "body");
  auto shortcut =
      options.shortcut.value ? make_chain(*options.shortcut.value, context, "shortcut") : make_shortcut(context, body.output_shape);
  if (shortcut.output_shape != body.output_shape) {
    throw UsageError(fmt::format(
        "the outputs of its body ({}) and its shortcut ({}) have different shapes; change one of them, or remove the key shortcut",
        shape_text(body.output_shape), shape_text(shortcut.output_shape)));
  }
  const auto residual = std::make_shared<Residual>(body.module, shortcut.module, options.drop_path, context.build.dropout_generator);
  return {torch::nn::AnyModule(residual), body.output_shape};
}

struct ConcatOptions : LayerOptions {
  Components branches = {};

  void describe(KeyTable& keys) {
    keys.add_components("branches", branches, layer_registry(),
                        "Layers with the same input, such as `sequence` or `identity`; the channels of their outputs are concatenated.");
    LayerOptions::describe(keys);
  }
};

class Concat : public LayerChain {
 public:
  torch::Tensor forward(const torch::Tensor& x) {
    std::vector<torch::Tensor> outputs;
    for (auto& branch : layers_) outputs.push_back(branch.forward(x));
    return at::cat(outputs, 1);
  }
};

Layer make_concat(const ConcatOptions& options, const LayerContext& context) {
  if (options.branches.empty()) throw OptionError("branches", "is empty; list at least one branch");
  auto concat = std::make_shared<Concat>();
  Shape shape;
  for (size_t i = 0; i < options.branches.size(); ++i) {
    const auto path = fmt::format("branches[{}].{}", i, options.branches[i].name);
    const auto name = child_name(name_of(options.branches[i]), *concat, path);
    auto branch = make_layer(options.branches[i], context, path);
    if (i == 0) {
      shape = branch.output_shape;
    } else if (!std::equal(shape.begin() + 1, shape.end(), branch.output_shape.begin() + 1, branch.output_shape.end())) {
      throw OptionError(fmt::format("branches[{}]", i),
                        fmt::format("has the output {}, but the branches before it have {}; only the number of channels may differ",
                                    shape_text(branch.output_shape), shape_text(shape)));
    } else {
      shape[0] += branch.output_shape[0];
    }
    concat->add(name, std::move(branch.module));
  }
  return {torch::nn::AnyModule(concat), shape};
}

// Calls `visit` for each layer of a list and of the lists in it.
void visit_layers(const Components& layers, const std::function<void(const ComponentConfig& layer, const SectionKeys& options)>& visit) {
  for (const auto& layer : layers) {
    const SectionKeys options(*layer.options);
    visit(layer, options);
    for (const auto& key : options.keys) {
      if (key.components != nullptr) visit_layers(key.components().value_or(Components{}), visit);
    }
  }
}

// Whether the network needs images of one size.
bool needs_one_size(const Components& layers) {
  bool found = false;
  visit_layers(layers, [&](const ComponentConfig& layer, const SectionKeys&) { found = found || layer.name == "flatten"; });
  return found;
}

// The number of `linear` layers whose `features` is auto (the default): they have as many outputs as the network.
int64_t num_output_layers(const Components& layers) {
  int64_t count = 0;
  visit_layers(layers, [&](const ComponentConfig& layer, const SectionKeys& options) {
    const auto* features = options.find("features");
    if (layer.name == "linear" && features != nullptr && features->write().text == "auto") ++count;
  });
  return count;
}

struct LayersOptions : ClassifierOptions {
  std::vector<int64_t> image_size = {};
  Components layers = {};

  void describe(KeyTable& keys) {
    describe_num_classes(keys);
    describe_in_channels(keys);
    keys.add("image_size", image_size,
             {.min = 1,
              .max = 65536,
              .unit = "pixels",
              .doc = "Height and width of the images, which determine the shapes of the layers; []: those of the training images.",
              .may_be_one = true});
    // Resuming compares the shapes of the tensors instead.
    keys.set_facts("image_size", {.affects_features = true});
    keys.refuse("image_size", [this] { return image_size.size() <= 2 ? "" : "must be one number or two, [height, width]"; });
    keys.add_components("layers", layers, layer_registry(), "The layers in sequence; `trainer list layers` shows all kinds.");
  }
  std::vector<int64_t> input_shape() const override {
    if (image_size.empty() || !needs_one_size(layers)) return {num_channels(), -1, -1};
    return {num_channels(), image_size.front(), image_size.back()};
  }
  void set_image_size(int64_t height, int64_t width) override {
    if (image_size.empty()) image_size = {height, width};
  }
};

class LayersNetwork : public FeatureMapModel {
 public:
  LayersNetwork(const LayersOptions& options, const BuildContext& context) : FeatureMapModel(options) {
    if (options.layers.empty())
      throw OptionError("layers", "is empty; list some layers, as in [conv_norm: {channels: 16}, global_avg_pool, linear]");
    if (options.image_size.empty())
      throw OptionError("image_size", "is unknown, because the data set does not define it; set it, for example to 224");
    if (num_output_layers(options.layers) > 1) {
      throw OptionError("layers", "more than one `linear` has no `features`; set `features` in all of them except the output layer");
    }
    chain_ = std::make_shared<LayerChain>();
    const Shape input = {options.num_channels(), options.image_size.front(), options.image_size.back()};
    const auto shape = add_layers_to(*chain_, options.layers, {context, input, options.num_outputs()}, "layers");
    if (shape != Shape{options.num_outputs()}) {
      throw OptionError(
          fmt::format("layers[{}]", options.layers.size() - 1),
          fmt::format("the last layer has the output {}, but the network needs {} outputs; end the list with {}`linear` without `features`",
                      shape_text(shape), options.num_outputs(), shape.size() == 1 ? "" : "global_avg_pool and "));
    }
    register_layers(*this, *chain_);
    nn::init_convolutions_(*this, context.init_generator);
    init_as_pytorch<nn::Linear>(*this, context.init_generator);
  }

  torch::Tensor forward_maps(const torch::Tensor& x) override { return chain_->forward_maps(x); }
  torch::Tensor pool_maps(const torch::Tensor& maps) override { return chain_->pool_maps(maps); }
  torch::Tensor forward_head(const torch::Tensor& features) override { return chain_->forward_head(features); }

 private:
  std::shared_ptr<LayerChain> chain_;  // its layers are registered as children of this module
};

}  // namespace

void add_layer_lists(LayerRegistry& registry) {
  registry.add<SequenceOptions>("sequence", "Layers in sequence, combined into one layer with its own name.",
                                [](const auto& options, const auto& context) {
                                  require_layers(options.layers, "layers");
                                  return make_chain(options.layers, context, "layers");
                                });
  registry.add<RepeatOptions>("repeat", "Repeats layers.", [](const auto& options, const LayerContext& context) -> Layer {
    auto chain = std::make_shared<LayerChain>();
    auto shape = add_repeated(*chain, options, context, "layers", /*is_repeated=*/false);
    return {torch::nn::AnyModule(chain), std::move(shape)};
  });
  registry.add<ResidualOptions>("residual", "Layers whose output is added to their input.", make_residual);
  registry.add<ConcatOptions>("concat", "Concatenates the channels of several layers with the same input.", make_concat);
  registry.add<LayerOptions>("identity", "The input itself, for `concat`.", [](const auto&, const LayerContext& context) -> Layer {
    return {torch::nn::AnyModule(std::make_shared<LayerChain>()), context.input_shape};
  });
}

void add_layer_lists(ModelRegistry& registry) {
  add_model<LayersNetwork, LayersOptions>(registry, "layers", "A network whose layers are listed in the experiment, see docs/networks.md.");
}

}  // namespace trainer::models
