#include "train/engine/freezing.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "config/load.h"
#include "models/model_registry.h"
#include "nn/batch_norm.h"
#include "run/recipe/build.h"
#include "run/recipe/registries.h"
#include "trainer/error.h"

namespace trainer::recipe {
namespace {

config::Experiment read(const std::string& model, const std::vector<std::string>& overrides) {
  const auto text = fmt::format(
      "experiment: a\n"
      "model: {}\n"
      "dataset: {{name: synthetic}}\n"
      "training: {{epochs: 1}}\n",
      model);
  return config::load_text(text, "x.yaml", overrides, all_registries());
}

std::shared_ptr<models::Model> build(const config::Experiment& experiment) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{1});
  return models::model_registry().make(experiment.model.component, {generator, generator, nn::batch_norms()});
}

std::vector<torch::Tensor> freeze(const config::Experiment& experiment, models::Model& model) {
  return engine::freeze(recipe_of(experiment, *make_quiet_logger()).options.parameters, model,
                        "the network " + experiment.model.component.name, [&](const std::string& key) { return experiment.place_of(key); });
}

std::string refusal_of(const std::string& model, const std::vector<std::string>& overrides = {}) {
  const auto experiment = read(model, overrides);
  const auto network = build(experiment);
  try {
    freeze(experiment, *network);
    return "";
  } catch (const UsageError& error) {
    for (const auto& parameter : network->parameters()) EXPECT_TRUE(parameter.requires_grad());
    return error.what();
  }
}

const std::string kNetwork = "{name: resnet18}";

TEST(Freeze, FreezesParametersAndStatisticsOfWholeLayers) {
  const auto experiment = read("{name: resnet18, freeze: [conv1, bn1, layer1.0, layer1.1.bn1.weight, layer1.1.bn1.bias]}", {});
  const auto network = build(experiment);
  freeze(experiment, *network);
  network->train();
  std::set<std::string> frozen;
  for (const auto& item : network->named_parameters()) {
    if (!item.value().requires_grad()) frozen.insert(item.key());
  }
  EXPECT_EQ(frozen, (std::set<std::string>{"conv1.weight", "bn1.weight", "bn1.bias", "layer1.0.conv1.weight", "layer1.0.bn1.weight",
                                           "layer1.0.bn1.bias", "layer1.0.conv2.weight", "layer1.0.bn2.weight", "layer1.0.bn2.bias",
                                           "layer1.1.bn1.weight", "layer1.1.bn1.bias"}));
  std::set<std::string> in_evaluation;
  for (const auto& item : network->named_modules("", /*include_self=*/false)) {
    if (!item.value()->is_training()) in_evaluation.insert(item.key());
  }
  // layer1.1.bn1 is missing here, because only its parameters are named.
  EXPECT_EQ(in_evaluation, (std::set<std::string>{"bn1", "layer1.0.bn1", "layer1.0.bn2"}));
}

TEST(Freeze, FreezesAllButTheLastLayer) {
  const std::vector<std::pair<std::string, std::set<std::string>>> networks = {
      {"{name: resnet18, freeze: [backbone]}", {"fc.weight", "fc.bias"}},
      {"{name: mobilenet_v3_small, freeze: [backbone]}", {"classifier.3.weight", "classifier.3.bias"}},
      {"{name: densenet121, freeze: [backbone]}", {"classifier.weight", "classifier.bias"}},
      {"{name: squeezenet1_1, freeze: [backbone]}", {"classifier.1.weight", "classifier.1.bias"}},
      {"{name: layers, freeze: [backbone], image_size: 8, layers: [conv_norm: {channels: 10}, global_avg_pool, linear: {name: head}]}",
       {"head.weight", "head.bias"}}};
  for (const auto& [model, expected] : networks) {
    const auto experiment = read(model, {});
    const auto network = build(experiment);
    freeze(experiment, *network);
    network->train();
    std::set<std::string> trained;
    for (const auto& item : network->named_parameters()) {
      if (item.value().requires_grad()) trained.insert(item.key());
    }
    EXPECT_EQ(trained, expected) << model;
    for (const auto& module : network->modules()) {
      const auto* norm = module->as<nn::BatchNorm2d>();
      EXPECT_FALSE(norm != nullptr && norm->is_training()) << model;
    }
  }
}

TEST(Freeze, AcceptsNamesOfLayersAndParameters) {
  EXPECT_EQ(refusal_of(kNetwork), "");
  EXPECT_EQ(refusal_of(kNetwork, {"optimizer.groups=[{parameters: [fc.bias]}, {parameters: [layer4, fc]}]"}), "");
}

TEST(Freeze, RefusesUnknownNamesTogether) {
  EXPECT_EQ(refusal_of("\n  name: resnet18\n  freeze:\n    - conv1\n    - layr1\n    - layer2.",
                       {"optimizer.groups=[{parameters: [fc]}, {parameters: [classifier]}]"}),
            "x.yaml:6:7: model.freeze[1]: the network resnet18 has neither a layer nor a parameter \"layr1\"; did you mean \"layer1\"?\n"
            "x.yaml:7:7: model.freeze[2]: the network resnet18 has neither a layer nor a parameter \"layer2.\"; did you mean \"layer2\"?\n"
            "command line: optimizer.groups[1].parameters[0]: the network resnet18 has neither a layer nor a parameter \"classifier\"; its "
            "outermost layers and parameters are conv1, bn1, layer1, layer2, layer3, layer4, fc");
}

TEST(Freeze, RefusesWhatHasNoParameters) {
  EXPECT_EQ(refusal_of(kNetwork, {"model.freeze=[dropout]"}),
            "command line: model.freeze[0]: the layer \"dropout\" of the network resnet18 has no parameters; remove this name");
  const auto running_mean = refusal_of(kNetwork, {"model.freeze=[bn1.running_mean]"});
  EXPECT_NE(running_mean.find("has neither a layer nor a parameter \"bn1.running_mean\""), std::string::npos) << running_mean;
}

TEST(Freeze, RefusesToFreezeTheWholeNetwork) {
  EXPECT_EQ(refusal_of(kNetwork, {"model.freeze=[conv1, bn1, layer1, layer2, layer3, layer4, fc]"}),
            "command line: model.freeze: every parameter of the network resnet18 is frozen, so there is nothing to train; leave at least "
            "the last layer (\"fc\") trainable");
}

TEST(Freeze, RefusesGroupsWithoutParametersOfTheirOwn) {
  const std::string rest = ": all of these parameters are frozen (model.freeze) or belong to an earlier item; remove this item";
  EXPECT_EQ(refusal_of(kNetwork, {"model.freeze=[conv1, bn1]", "optimizer.groups=[{parameters: [bn1]}, {parameters: [layer1]}]"}),
            "command line: optimizer.groups[0].parameters" + rest);
  EXPECT_EQ(refusal_of(kNetwork, {"optimizer.groups=[{parameters: [layer1]}, {parameters: [layer1.0, layer1.1.conv1]}]"}),
            "command line: optimizer.groups[1].parameters" + rest);
}

}  // namespace
}  // namespace trainer::recipe
