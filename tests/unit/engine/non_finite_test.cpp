// Steps that are not finite: they are skipped, reported and saved, and can be repeated.

#include "train/engine/non_finite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <mutex>

#include "run/recipe/build.h"
#include "tests/testing/ranks.h"
#include "tests/testing/small_run.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer::engine {
namespace {

using testing::bitwise_equal;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kText =
    "experiment: non_finite\n"
    "dataset: {name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 48, num_validation: 8}\n"
    "dataloader: {global_batch_size: 8}\n"
    "optimizer: {name: sgd, lr: 0.001, momentum: 0.9}\n"
    "runtime: {dtype: float64, threads: 1, device: cpu}\n"
    "training: {epochs: 1}\n"
    "logging: {every_steps: 1}\n";

// An epoch has six steps. Before step `first`, the weights of rank `rank` are set to values so large that a layer's output is infinite;
// before step `end`, they are restored.
struct Overflow {
  int rank = 0;
  int64_t first = 3;
  int64_t end = 4;
};

class OverflowHook : public TrainingHook {
 public:
  OverflowHook(Parts& parts, const Overflow& overflow) : parts_(parts), overflow_(overflow) {}

  void before_step(int64_t step) override {
    if (parts_.ranks.world->rank() != overflow_.rank) return;
    const torch::NoGradGuard no_grad;
    if (step == overflow_.first) {
      for (const auto& tensor : testing::state_of(parts_)) before.push_back(tensor.detach().clone());
      for (auto& parameter : parts_.network.model->parameters()) parameter.fill_(parameter.scalar_type() == torch::kFloat64 ? 1e308 : 1e38);
      for (const auto& tensor : testing::state_of(parts_)) during.push_back(tensor.detach().clone());
    }
    if (step == overflow_.end) {
      for (const auto& tensor : testing::state_of(parts_)) after.push_back(tensor.detach().clone());
      const auto parameters = parts_.network.model->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) torch::Tensor(parameters[i]).copy_(before[i]);
    }
  }

  std::vector<torch::Tensor> before, during, after;

 private:
  Parts& parts_;
  Overflow overflow_;
};

struct Outcome {
  std::vector<StepRecord> saved;
  std::vector<std::string> warnings;
  std::vector<reporting::TrainEvent> lines;
  std::vector<reporting::ValidationEvent> validations;
  std::string error;
  bool state_unchanged = false;  // by the steps with the large weights
  int64_t num_skipped = 0;       // by the GradScaler
  double loss_scale = 0;         // at the end
};

Outcome train(const std::string& model, const Overflow& overflow, const std::vector<std::string>& overrides, const Ranks& ranks = {},
              const std::filesystem::path& folder = {}) {
  const auto text = kText + "model: " + model + "\n";
  testing::SmallSession session(text, overrides, ranks);
  auto& parts = session.parts();
  OverflowHook hook(parts, overflow);
  testing::Recorder events;
  Outcome outcome;
  const auto save = [&](const StepRecord& record) {
    outcome.saved.push_back(record);
    if (!folder.empty()) write_step(folder, record, *parts.network.model, text);
    return std::filesystem::path("saved/step");
  };
  try {
    TrainingLoop trainer(session.recipe.options.loop, parts, events, [] { return false; }, {.non_finite_step = save});
    trainer.add_hook(hook);
    trainer.run();
  } catch (const AgreedError& error) {
    outcome.error = error.what();
  }
  for (const auto& warning : events.warnings) outcome.warnings.push_back(warning.message);
  outcome.lines = events.train;
  outcome.validations = events.validation;
  outcome.state_unchanged = bitwise_equal(hook.during, hook.after);
  if (parts.network.grad_scaler) {
    outcome.num_skipped = parts.network.grad_scaler->num_skipped();
    outcome.loss_scale = parts.network.grad_scaler->current_scale().item<double>();
  }
  parts.data_parallel.reset();
  return outcome;
}

const std::string kStop = "training.on_non_finite=stop";
const std::string kSkip = "training.on_non_finite=skip";

TEST(NonFinite, StopsAndNamesTheStepTheLayerAndTheLearningRate) {
  const auto outcome = train("{name: resnet20}", {}, {kStop});
  EXPECT_EQ(outcome.error,
            "step 3 is not finite, at learning rate 0.001: the first non-finite value is in the output of conv1; the step is skipped and "
            "saved for `trainer replay "
            "saved/step`; lower optimizer.lr, add lr_scheduler.warmup_steps, or set training.max_grad_norm");
  ASSERT_EQ(outcome.saved.size(), 1U);
  EXPECT_EQ(outcome.saved[0].step, 3);
  EXPECT_EQ(outcome.saved[0].first_non_finite, "the output of conv1");
  EXPECT_TRUE(outcome.warnings.empty());
}

TEST(NonFinite, ASkippedStepChangesNothing) {
  for (const auto& optimizer : {"sgd", "adamw", "rmsprop", "sam", "muon"}) {
    const auto outcome = train("{name: resnet20}", {}, {kSkip, std::string("optimizer={name: ") + optimizer + ", lr: 0.001}"});
    EXPECT_EQ(outcome.error, "");
    EXPECT_TRUE(outcome.state_unchanged) << optimizer;
    ASSERT_EQ(outcome.warnings.size(), 1U);
    EXPECT_EQ(outcome.warnings[0],
              "step 3 is not finite, at learning rate 0.001: the first non-finite value is in the output of conv1; the step is skipped and "
              "saved for `trainer replay "
              "saved/step`");
    // An interval in which all steps were skipped is not reported.
    ASSERT_EQ(outcome.lines.size(), 5U);
    for (const auto& line : outcome.lines) EXPECT_TRUE(std::isfinite(testing::loss_of(line))) << line.step;
    EXPECT_EQ(outcome.lines[3].step, 5);
  }
}

TEST(NonFinite, TheBatchesAfterASkippedStepAreTheSame) {
  // With a learning rate of nearly 0, the loss of a step depends only on its images.
  const std::vector<std::string> still = {kSkip, "optimizer.lr=1.0e-300", "dataloader.num_workers=2", "training.epochs=2"};
  const auto straight = train("{name: demo_conv}", {.rank = -1}, still);
  const auto skipped = train("{name: demo_conv}", {}, still);
  ASSERT_EQ(straight.lines.size(), 12U);
  ASSERT_EQ(skipped.lines.size(), 11U);
  for (const auto& line : skipped.lines)
    EXPECT_EQ(testing::loss_of(line), testing::loss_of(straight.lines[static_cast<size_t>(line.step) - 1])) << line.step;
}

TEST(NonFinite, ASkippedStepIsNotAveraged) {
  // With a learning rate of nearly 0, the averaged parameters equal those of the model.
  const auto outcome = train("{name: demo_conv}", {}, {kSkip, "optimizer.lr=1.0e-300", "training.ema={}"});
  ASSERT_EQ(outcome.warnings.size(), 1U);
  ASSERT_EQ(outcome.validations.size(), 1U);
  EXPECT_NEAR(testing::ema_value_of(outcome.validations[0], "loss").value(), testing::loss_of(outcome.validations[0]), 1e-12);
}

TEST(NonFinite, TenInARowEndTheRun) {
  const auto outcome = train("{name: demo_conv}", {.first = 3, .end = 100}, {kSkip, "training.epochs=3"});
  EXPECT_EQ(outcome.warnings.size(), 9U);
  EXPECT_EQ(outcome.saved.size(), 3U);
  EXPECT_THAT(outcome.error, StartsWith("step 12 is not finite"));
  EXPECT_THAT(outcome.error, HasSubstr("the step, the 10th in a row, is skipped; lower optimizer.lr"));
}

TEST(NonFinite, MicroStepsAreSaved) {
  const auto outcome = train("{name: demo_conv}", {}, {kStop, "training.accumulation_steps=4"});
  ASSERT_EQ(outcome.saved.size(), 1U);
  const auto& record = outcome.saved[0];
  EXPECT_EQ(record.first_non_finite, "the output of conv");
  ASSERT_EQ(record.batches.size(), 4U);
  for (const auto& batch : record.batches) EXPECT_EQ(batch.size(), 2U);
  EXPECT_EQ(record.num_group_samples, 8);
}

TEST(NonFinite, Float16SkipsOneStepOfANanLossAndHalvesTheScaleOnce) {
  // The second network has running statistics, which a skipped step must not change either.
  for (const auto* model : {"{name: demo_conv}", "{name: resnet20}"}) {
    const auto outcome =
        train(model, {},
              {kStop, "runtime.dtype=float32", "amp={enabled: true, dtype: float16, init_scale: 1024.0}", "training.ema={decay: 0.5}"});
    EXPECT_EQ(outcome.error, "");
    EXPECT_TRUE(outcome.state_unchanged) << model;
    EXPECT_TRUE(outcome.saved.empty());
    EXPECT_EQ(outcome.num_skipped, 1);
    EXPECT_EQ(outcome.loss_scale, 512);
    // The interval of the skipped step is not reported.
    ASSERT_EQ(outcome.lines.size(), 5U);
    for (const auto& line : outcome.lines) EXPECT_TRUE(std::isfinite(testing::loss_of(line))) << line.step;
    ASSERT_EQ(outcome.validations.size(), 1U);
    EXPECT_TRUE(std::isfinite(testing::loss_of(outcome.validations[0]))) << model;
    EXPECT_TRUE(std::isfinite(testing::ema_value_of(outcome.validations[0], "loss").value())) << model;
  }
}

TEST(NonFinite, Float16StopsWhenNoScaleHelps) {
  const auto outcome = train("{name: demo_conv}", {.first = 3, .end = 100},
                             {kStop, "runtime.dtype=float32", "amp={enabled: true, dtype: float16, init_scale: 2.0}"});
  EXPECT_THAT(
      outcome.error,
      StartsWith("step 4 is not finite, at learning rate 0.001 and loss scale 1: the first non-finite value is in the output of conv;"));
  ASSERT_EQ(outcome.saved.size(), 1U);
  EXPECT_EQ(outcome.saved[0].loss_scale, 1);
}

TEST(NonFinite, TheRankWithTheFirstNonFiniteValueIsNamed) {
  for (const auto& model : {"{name: resnet20}", "{name: demo_conv}"}) {
    const bool has_norm = std::string(model) == "{name: resnet20}";
    std::mutex mutex;
    std::vector<Outcome> outcomes(3);
    testing::run_ranks(3, [&](distributed::ProcessGroups& groups) {
      auto outcome = train(model, {.rank = 1}, {kStop, "dataloader.global_batch_size=12"}, make_ranks(groups));
      const std::lock_guard lock(mutex);
      outcomes[static_cast<size_t>(groups.world()->rank())] = std::move(outcome);
    });
    EXPECT_THAT(outcomes[0].error, HasSubstr(has_norm ? "the first non-finite value is in the output of conv1 on rank 1;"
                                                      : "the first non-finite value is in the output of conv on rank 1;"));
    EXPECT_EQ(outcomes[1].error, "");
    EXPECT_EQ(outcomes[2].error, "");
    ASSERT_EQ(outcomes[0].saved.size(), 1U);
    const auto& record = outcomes[0].saved[0];
    EXPECT_EQ(record.rank, 1);
    EXPECT_EQ(record.is_joined, has_norm);
    ASSERT_EQ(record.batches.size(), 1U);
    EXPECT_EQ(record.batches[0].size(), has_norm ? 12U : 4U);
  }
}

TEST(NonFinite, TheBatchesOfAllRanksAreSavedIfTheyDecideTheSecondPass) {
  for (const std::string perturbation : {"global", "rank"}) {
    std::mutex mutex;
    std::vector<StepRecord> saved;
    testing::run_ranks(2, [&](distributed::ProcessGroups& groups) {
      const auto outcome = train("{name: demo_conv}", {}, {kStop, "optimizer={name: sam, lr: 0.001, perturbation: " + perturbation + "}"},
                                 make_ranks(groups));
      const std::lock_guard lock(mutex);
      saved.insert(saved.end(), outcome.saved.begin(), outcome.saved.end());
    });
    const bool is_global = perturbation == "global";
    ASSERT_EQ(saved.size(), 1U);
    EXPECT_EQ(saved[0].is_joined, is_global);
    ASSERT_EQ(saved[0].batches.size(), 1U);
    EXPECT_EQ(saved[0].batches[0].size(), is_global ? 8U : 4U);
  }
}

TEST(NonFinite, ARecordIsReadBackUnchanged) {
  const testing::TemporaryFolder folder;
  const auto outcome = train("{name: resnet20}", {}, {kStop, "dataloader.sampler.name=class_balanced"}, {}, folder.path());
  ASSERT_EQ(outcome.saved.size(), 1U);
  const auto& saved = outcome.saved[0];
  const auto read = read_step(folder.path());
  EXPECT_EQ(read.step, 3);
  EXPECT_EQ(read.epoch, 0);
  EXPECT_EQ(read.lr, saved.lr);
  EXPECT_EQ(read.loss_scale, 0);
  EXPECT_EQ(read.batches, saved.batches);
  ASSERT_EQ(saved.occurrences.size(), 1U);
  EXPECT_EQ(saved.occurrences[0].size(), 8U);
  EXPECT_EQ(read.occurrences, saved.occurrences);
  EXPECT_EQ(read.num_group_samples, 8);
  EXPECT_EQ(read.first_non_finite, saved.first_non_finite);
  EXPECT_TRUE(read.repeats);

  auto experiment = config::load(step_config_file(folder.path()), {}, recipe::all_registries());
  const auto network = recipe::build_network(experiment, device::choose_placement(recipe::placement_options(experiment), {}, {}));
  read_model(folder.path(), *network.model);
  EXPECT_TRUE((network.model->parameters()[0] == 1e308).all().item<bool>());
  EXPECT_TRUE(network.model->named_buffers()["bn1.running_mean"].isfinite().all().item<bool>());
}

TEST(NonFinite, AnInvalidRecordIsRejected) {
  const testing::TemporaryFolder folder;
  const auto message = [](const std::function<void()>& act) -> std::string {
    try {
      act();
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  const auto path = folder.path().string();
  EXPECT_EQ(message([&] { read_step(folder.path()); }),
            path + "/step.json: there is no such file; give a folder in which a run saved a step, such as runs/my_run/non_finite/step_12");
  std::ofstream(folder.path() / "step.json") << "{\"step\": 3}";
  EXPECT_THAT(message([&] { read_step(folder.path()); }), StartsWith(path + "/step.json: not a record of a step ("));
  torch::nn::Linear model(2, 2);
  EXPECT_EQ(message([&] { read_model(folder.path(), *model); }),
            path + "/model.pt: there is no such file; give a folder in which a run saved a step, such as runs/my_run/non_finite/step_12");
  std::ofstream(folder.path() / "model.pt") << "no tensors";
  EXPECT_THAT(message([&] { read_model(folder.path(), *model); }), StartsWith(path + "/model.pt: not a state of this model ("));
}

}  // namespace
}  // namespace trainer::engine
