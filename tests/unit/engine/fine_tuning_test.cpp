// Runs with frozen layers and groups of parameters.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>

#include "inference/weights_by_name.h"
#include "tests/testing/small_run.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/state.h"

namespace trainer::engine {
namespace {

constexpr const char* kFineTuning =
    "experiment: fine_tuning\n"
    "model: {name: resnet20, freeze: [conv1, bn1, layer1, layer2.0.bn1, layer3.2]}\n"
    "dataset: {name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 24, num_validation: 8}\n"
    "dataloader: {batch_size: 8}\n"
    "optimizer: {name: sgd, lr: 0.01, momentum: 0.9, weight_decay: 5.0e-4, groups: [{parameters: [fc], lr_factor: 2, weight_decay: 0}]}\n"
    "validation: {batch_size: 4}\n"
    "runtime: {threads: 1}\n"
    "amp: {enabled: false}\n"
    "training: {epochs: 2}\n"
    "logging: {every_steps: 1}\n";

bool is_frozen_name(const std::string& name) {
  for (const std::string frozen : {"conv1.", "bn1.", "layer1.", "layer2.0.bn1.", "layer3.2."}) {
    if (name.starts_with(frozen)) return true;
  }
  return false;
}

// Whether `name` is that of a running statistic or of the counter of a batch normalisation.
bool is_statistic(const std::string& name) {
  return name.ends_with("running_mean") || name.ends_with("running_var") || name.ends_with("num_batches_tracked");
}

// Frozen layers also stay unchanged after the validation of the first epoch, which switches the network to evaluation and back.
TEST(FineTuning, FrozenLayersStayAsTheyAre) {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"optimizer.skip_zero_grads=true", "training.max_grad_norm=0.1"},
      {"optimizer={name: sam, lr: 0.01, momentum: 0.9}"},
      {"optimizer={name: muon, lr: 0.01, normalize_weights: true}"},
      {"optimizer={name: adamw, lr: 0.01, groups: [{parameters: [layer3], lr_factor: 0.5}]}", "optimizer.decay_norm_and_bias=false",
       "training.accumulation_steps=2"},
      {"optimizer={name: rmsprop, lr: 0.001}", "training.ema={decay: 0.9}"},
      {"amp={enabled: true, dtype: float16}"},
      {"runtime.fuse=off", "runtime.convolution=direct"},
  };
  for (const auto& overrides : cases) {
    SCOPED_TRACE(fmt::format("{}", overrides.empty() ? "defaults" : overrides.front()));
    testing::SmallSession untrained(kFineTuning, overrides);
    const auto before = state::state_of(*untrained.parts().network.model);
    const auto run = testing::train_text(kFineTuning, overrides);
    ASSERT_TRUE(run.done);
    EXPECT_TRUE(std::isfinite(testing::loss_of(run.events.train.back())));
    const auto after = state::state_of(*run.parts().network.model);
    for (const auto& item : after.items()) {
      const auto name = state::to_string(item.key);
      const bool is_same =
          torch::equal(std::get<torch::Tensor>(item.value.value()), std::get<torch::Tensor>(before.find(item.key)->value()));
      EXPECT_EQ(is_same, is_frozen_name(name)) << name;
    }
  }
}

// These optimizers keep a state, which frozen parameters do not have.
TEST(FineTuning, LayersAreTrainedOnceTheyAreUnfrozen) {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"optimizer={name: sam, lr: 0.01, momentum: 0.9}"},
      {"optimizer={name: muon, lr: 0.01, normalize_weights: true}"},
      {"optimizer={name: adamw, lr: 0.01, layer_decay: 0.9}", "training.max_grad_norm=1", "training.ema={decay: 0.9}"},
      {"optimizer={name: rmsprop, lr: 0.001}", "training.accumulation_steps=2"},
      {"amp={enabled: true, dtype: float16}"},
  };
  for (auto overrides : cases) {
    SCOPED_TRACE(fmt::format("{}", overrides.empty() ? "defaults" : overrides.front()));
    overrides.emplace_back("training.unfreeze_after=1");
    testing::SmallSession untrained(kFineTuning, overrides);
    const auto before = state::state_of(*untrained.parts().network.model);
    const auto num_steps = overrides.size() == 2 && overrides.front() == "optimizer={name: rmsprop, lr: 0.001}" ? 2 : 3;
    for (const bool is_unfrozen : {false, true}) {
      const auto run = testing::train_text(kFineTuning, overrides, is_unfrozen ? -1 : num_steps);
      const auto after = state::state_of(*run.parts().network.model);
      for (const auto& item : after.items()) {
        const auto name = state::to_string(item.key);
        const bool is_same =
            torch::equal(std::get<torch::Tensor>(item.value.value()), std::get<torch::Tensor>(before.find(item.key)->value()));
        const bool stays = is_unfrozen ? is_statistic(name) : true;
        EXPECT_EQ(is_same, stays && is_frozen_name(name)) << name << (is_unfrozen ? " at the end" : " in the first epoch");
      }
      EXPECT_TRUE(std::isfinite(testing::loss_of(run.events.train.back())));
    }
  }
}

TEST(FineTuning, UnfreezingIsAsContinuingWithoutFreeze) {
  // The frozen layers have no batch normalisation, whose statistics would stay frozen.
  const std::vector<std::string> until_unfrozen = {"optimizer={name: adamw, lr: 0.01}", "model.freeze=[conv1, layer2.0.conv1]",
                                                   "training.unfreeze_after=1"};
  const auto whole = testing::train_text(kFineTuning, until_unfrozen);
  const testing::TemporaryFolder folder;
  testing::train_text(kFineTuning, until_unfrozen, 3, {}, folder.path());
  const auto continued = testing::train_text(kFineTuning, {until_unfrozen.front(), "model.freeze=[]"}, -1, {}, folder.path());
  const auto expected = state::state_of(*whole.parts().network.model);
  const auto actual = state::state_of(*continued.parts().network.model);
  for (const auto& item : expected.items()) {
    EXPECT_TRUE(torch::equal(std::get<torch::Tensor>(item.value.value()), std::get<torch::Tensor>(actual.find(item.key)->value())))
        << state::to_string(item.key);
  }
}

TEST(FineTuning, FrozenParametersHaveNeitherGradientNorState) {
  const auto run = testing::train_text(kFineTuning, {}, /*max_steps=*/1);
  const auto& parts = run.parts();
  size_t num_trained = 0;
  for (const auto& item : parts.network.model->named_parameters()) {
    if (item.value().requires_grad()) ++num_trained;
    EXPECT_EQ(item.value().requires_grad(), !is_frozen_name(item.key())) << item.key();
  }
  EXPECT_EQ(parts.network.optimizer->parameters().size(), num_trained);
  EXPECT_EQ(state::tensors_of(parts.network.optimizer->state(/*lr=*/0.1, {})).size(), num_trained);
}

// The first update of SGD without momentum is the learning rate times the gradient.
TEST(FineTuning, AGroupMovesByItsFactor) {
  const auto weight_after_a_step = [](const std::string& groups) {
    const auto run = testing::train_text(kFineTuning, {"optimizer={name: sgd, lr: 0.01}", "optimizer.groups=" + groups}, /*max_steps=*/1);
    return run.parts().network.model->named_parameters()["fc.weight"].detach().to(torch::kFloat64);
  };
  testing::SmallSession untrained(kFineTuning);
  const auto before = untrained.parts().network.model->named_parameters()["fc.weight"].detach().to(torch::kFloat64);
  const auto plain = weight_after_a_step("[]") - before;
  const auto faster = weight_after_a_step("[{parameters: [fc], lr_factor: 4}]") - before;
  EXPECT_GT(plain.abs().max().item<double>(), 1e-4);
  // Weights of up to 0.125 are rounded to multiples of 2^-27, 7e-9.
  EXPECT_LT((faster - 4 * plain).abs().max().item<double>(), 1e-7);
}

// A checkpoint contains the names of its classes.
TEST(FineTuning, RowsOfTheLastLayerFollowTheNamesOfClasses) {
  testing::SmallSession trained(kFineTuning, {"seed=1"});
  testing::SmallSession other(kFineTuning, {"seed=2", "dataset.num_classes=3"});
  state::Dict file;
  file.add("model", state::state_of(*trained.parts().network.model));
  state::List names;
  for (int label = 0; label < 10; ++label) names.emplace_back("class " + std::to_string(label));
  file.add("class_names", names);
  const auto row = [](testing::SmallSession& session, int64_t label) {
    return session.parts().network.model->named_parameters()["fc.weight"].detach()[label].clone();
  };
  const auto before = row(other, 1);
  const auto text = inference::init_model(file, "a.pt", /*strict=*/false, *other.parts().network.model, {"class 7", "new", "class 0"}).text;
  EXPECT_THAT(text,
              ::testing::HasSubstr("; in the last layer (fc), 2 of 3 classes start with the values of the class of the same name in the "
                                   "file, the others with random values"));
  EXPECT_TRUE(torch::equal(row(other, 0), row(trained, 7)));
  EXPECT_TRUE(torch::equal(row(other, 1), before));
  EXPECT_TRUE(torch::equal(row(other, 2), row(trained, 0)));
  // The weights of the last layer are assigned by class name also if the number of classes is the same.
  testing::SmallSession reordered(kFineTuning, {"seed=2"});
  std::vector<std::string> reversed;
  for (int label = 9; label >= 0; --label) reversed.push_back("class " + std::to_string(label));
  inference::init_model(file, "a.pt", /*strict=*/false, *reordered.parts().network.model, reversed);
  EXPECT_TRUE(torch::equal(row(reordered, 9), row(trained, 0)));
}

}  // namespace
}  // namespace trainer::engine
