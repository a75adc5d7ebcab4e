// A run that is stopped and resumed on the same number of ranks equals an uninterrupted run, bit for bit. Another number of ranks trains
// the rest of the epoch.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/testing/ranks.h"
#include "tests/testing/small_run.h"
#include "tests/testing/temporary_folder.h"
#include "train/engine/non_finite.h"
#include "trainer/error.h"

namespace trainer::engine {
namespace {

using ::testing::HasSubstr;
using testing::SmallRun;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;

// An epoch has five steps; losses are reported after the second, the fourth and the last one.
std::string resume_text(const std::string& model) {
  return fmt::format(
      "experiment: resume\n"
      "model: {}\n"
      "dataset: {{name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 50, num_validation: 11}}\n"
      "dataloader: {{global_batch_size: 12, drop_last: false, shards: exact}}\n"
      "optimizer: {{name: sgd, lr: 0.01, momentum: 0.9, weight_decay: 5.0e-4}}\n"
      "lr_scheduler: {{name: cosine, warmup_steps: 2}}\n"
      "validation: {{batch_size: 4}}\n"
      "runtime: {{threads: 1}}\n"
      "amp: {{enabled: false}}\n"
      "training: {{epochs: 2}}\n"
      "logging: {{every_steps: 2}}\n",
      model);
}
const std::string kConvolution = "{name: demo_conv}";
const std::string kNorm = "{name: resnet20}";

using Overrides = std::vector<std::string>;

// Returns the run of rank 0; the other ranks' parameters are equal.
SmallRun train_on(int world_size, const std::string& text, const Overrides& overrides, int64_t max_steps,
                  const std::filesystem::path& folder) {
  SmallRun first;
  testing::run_ranks(world_size, [&](distributed::ProcessGroups& groups) {
    auto run = testing::train_text(text, overrides, max_steps, make_ranks(groups), folder);
    run.leave_ranks();
    if (groups.world()->rank() == 0) first = std::move(run);
  });
  return first;
}

// Returns losses, metrics, learning rates and steps as lines of text.
std::vector<std::string> lines_of(const testing::Recorder& events) {
  std::vector<std::string> lines;
  for (const auto& e : events.train) {
    lines.push_back(fmt::format("train {} {} {} {} {} {} {}", e.epoch, e.step, e.step_in_epoch, e.steps_per_epoch, testing::loss_of(e),
                                testing::value_of(e, "top1").value_or(-1), e.lr));
  }
  for (const auto& e : events.validation) {
    lines.push_back(fmt::format("validation {} {} {} {} {}", e.epoch, e.step, testing::loss_of(e),
                                testing::value_of(e, "top1").value_or(-1), e.num_samples) +
                    fmt::format(" {}", testing::ema_value_of(e, "loss").value_or(-1)));
  }
  for (const auto& e : events.epochs) {
    lines.push_back(fmt::format("epoch {} {} {} {} {}", e.epoch, e.step, e.lr, reporting::value_of(e.train_metrics, "loss").value(),
                                reporting::value_of(e.train_metrics, "top1").value_or(-1)));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::vector<torch::Tensor> tensors_of(const SmallRun& run) {
  auto tensors = testing::state_of(run.parts());
  for (const auto& tensor : state::tensors_of(run.parts().network.optimizer->state(/*lr=*/0.1, {}))) tensors.push_back(tensor);
  if (!run.parts().ema) return tensors;
  for (const auto& tensor : state::tensors_of(run.parts().ema->state())) tensors.push_back(tensor);
  return tensors;
}

// For each of `stops`: stops a run after that many calls of should_stop, resumes it, and compares it with an uninterrupted run.
void expect_resumes_exactly(int world_size, const std::string& text, const Overrides& overrides, const std::vector<int64_t>& stops) {
  const auto straight = train_on(world_size, text, overrides, -1, {});
  for (const auto stop : stops) {
    SCOPED_TRACE(fmt::format("{} ranks, stopped at {}", world_size, stop));
    const TemporaryFolder folder;
    auto part = train_on(world_size, text, overrides, stop, folder.path());
    ASSERT_FALSE(part.done);
    auto events = part.events;
    part = train_on(world_size, text, overrides, -1, folder.path());
    ASSERT_TRUE(part.done);
    for (const auto& event : part.events.train) events.train.push_back(event);
    for (const auto& event : part.events.validation) events.validation.push_back(event);
    for (const auto& event : part.events.epochs) events.epochs.push_back(event);
    EXPECT_EQ(lines_of(events), lines_of(straight.events));
    EXPECT_TRUE(testing::bitwise_equal(tensors_of(part), tensors_of(straight)));
    EXPECT_EQ(part.events.end.best_validation->step, straight.events.end.best_validation->step);
    EXPECT_EQ(part.events.end.final_validation->classes.confusion, straight.events.end.final_validation->classes.confusion);
  }
}

TEST(Resume, AtEachStepAndValidationBatch) {
  // Calls of should_stop: in each epoch five for the steps, one before the validation and three for its batches; one between the epochs.
  std::vector<int64_t> stops(18);
  std::iota(stops.begin(), stops.end(), 1);
  expect_resumes_exactly(1, resume_text(kConvolution), {}, stops);
}

TEST(Resume, AtEachStepAndValidationBatchOfALastEpochThatIsNotWhole) {
  // The last epoch has three calls of should_stop for the steps, one before the validation and three for its batches.
  const Overrides steps = {"training.epochs=null", "training.steps=8"};
  expect_resumes_exactly(1, resume_text(kConvolution), steps, {10, 11, 12, 13, 14, 15, 16});
  expect_resumes_exactly(2, resume_text(kConvolution), steps, {11, 14});
}

TEST(Resume, AtEachStepAndValidationBatchWithValidationsWithinEpochs) {
  // The first epoch has two further validations, after steps 2 and 4, with four calls of should_stop each.
  std::vector<int64_t> stops(20);
  std::iota(stops.begin(), stops.end(), 1);
  const Overrides within = {"validation.every_steps=2"};
  expect_resumes_exactly(1, resume_text(kConvolution), within, stops);
  expect_resumes_exactly(2, resume_text(kConvolution), within, {3, 6, 9});
}

TEST(Resume, WithALearningRateThatDependsOnValidations) {
  const Overrides plateau = {"lr_scheduler={name: reduce_on_plateau, factor: 0.5, patience: 0, threshold: 1, warmup_steps: 2}",
                             "validation.every_steps=2"};
  expect_resumes_exactly(1, resume_text(kConvolution), plateau, {4, 7, 10, 14, 21});
  expect_resumes_exactly(2, resume_text(kConvolution), plateau, {5});
}

TEST(Resume, WithEarlyStopping) {
  const Overrides early = {"optimizer.lr=0", "training.epochs=50", "training.early_stopping={patience: 2}", "validation.every_steps=3"};
  expect_resumes_exactly(1, resume_text(kConvolution), early, {3, 6, 8, 11, 14});
}

TEST(Resume, OnSeveralRanksWithSynchronisedBatchStatistics) {
  for (const int world_size : {1, 2, 3}) expect_resumes_exactly(world_size, resume_text(kNorm), {}, {3, 8});
}

TEST(Resume, WithDropout) {
  for (const int world_size : {1, 2}) {
    expect_resumes_exactly(world_size, resume_text("{name: vgg11_bn, head: cifar, dropout: 0.5}"), {"training.epochs=1"}, {2});
  }
}

TEST(Resume, WithRandomTransforms) {
  const Overrides overrides = {fmt::format("dataset={{name: cifar10, root: {}/datasets/cifar10_sample}}", TRAINER_SOURCE_DIR),
                               "dataset.train_transforms=[random_horizontal_flip, {random_crop: {size: 32, padding: 4}}]",
                               "dataset.validation_transforms=[]", "dataloader.global_batch_size=300", "validation.batch_size=250"};
  for (const int world_size : {1, 2, 3}) expect_resumes_exactly(world_size, resume_text(kConvolution), overrides, {3});
}

TEST(Resume, WithBatchTransforms) {
  for (const int world_size : {1, 2}) {
    expect_resumes_exactly(world_size, resume_text(kConvolution), {"dataset.batch_transforms=[mixup: {alpha: 0.2}, cutmix]"}, {3, 8});
  }
}

TEST(Resume, WithSmallerImagesAtFirst) {
  for (const int world_size : {1, 2}) {
    expect_resumes_exactly(world_size, resume_text(kNorm), {"dataset.size_schedule=[{size: 24, until: 0.5}]"}, {3, 8, 12});
  }
}

TEST(Resume, WithLocalBatchStatistics) { expect_resumes_exactly(2, resume_text(kNorm), {"distributed.sync_batch_norm=false"}, {3}); }

TEST(Resume, WithAccumulationAndOtherOptimizers) {
  const Overrides accumulates = {"dataloader.global_batch_size=16", "training.accumulation_steps=2"};
  for (const auto* optimizer : {"optimizer={name: adamw, lr: 0.001}", "optimizer={name: adam, lr: 0.001}",
                                "optimizer={name: rmsprop, lr: 0.001, momentum: 0.9, centered: true}"}) {
    for (const int world_size : {1, 2}) {
      auto overrides = accumulates;
      overrides.emplace_back(optimizer);
      expect_resumes_exactly(world_size, resume_text(kConvolution), overrides, {2, 5});
    }
  }
  expect_resumes_exactly(1, resume_text(kConvolution), {"optimizer={name: sam, lr: 0.01, momentum: 0.9}"}, {3});
  expect_resumes_exactly(1, resume_text(kConvolution), {"optimizer={name: muon, lr: 0.01}"}, {3});
}

// Some frozen layers come after a trained layer.
TEST(Resume, WithFrozenLayersAndGroups) {
  const Overrides overrides = {
      "model.freeze=[conv1, bn1, layer1, layer2.0.bn1, layer3.2]",
      "optimizer.groups=[{parameters: [fc], lr_factor: 5}, {parameters: [layer3], lr_factor: 0.5, weight_decay: 0}]",
      "training.ema={decay: 0.9}"};
  for (const int world_size : {1, 2}) expect_resumes_exactly(world_size, resume_text(kNorm), overrides, {3, 8});
}

TEST(Resume, WithAveragedParameters) {
  for (const int world_size : {1, 2}) {
    expect_resumes_exactly(world_size, resume_text(kNorm), {"training.ema={decay: 0.9, warmup: true}"}, {4});
  }
}

TEST(Resume, AfterSkippedSteps) {
  const Overrides overrides = {"amp={enabled: true, dtype: float16, init_scale: 1.0e6, growth_interval: 3}"};
  const auto straight = train_on(1, resume_text(kConvolution), overrides, -1, {});
  ASSERT_GT(straight.events.train.front().skipped_steps.value(), 0);
  expect_resumes_exactly(1, resume_text(kConvolution), overrides, {1, 2, 4});
}

TEST(Resume, FromACheckpointWithinAnEpoch) {
  const TemporaryFolder folder;
  const auto text = resume_text(kConvolution);
  const Overrides overrides = {"checkpoint.every_steps=3", "checkpoint.keep_last=10"};
  const auto straight = train_on(1, text, overrides, -1, folder.path());
  ASSERT_TRUE(straight.done);
  // There are checkpoints of steps 3, 6 and 9, and of the ends of both epochs.
  EXPECT_EQ(checkpoint::list_checkpoints(folder.path()).size(), 5U);
  ASSERT_EQ(straight.events.checkpoints.size(), 5U);
  for (const int64_t kept : {9, 6, 3}) {
    for (const auto& file : checkpoint::list_checkpoints(folder.path())) {
      if (file.filename() > fmt::format("step_{:08}.pt", kept)) std::filesystem::remove(file);
    }
    const auto resumed = train_on(1, text, overrides, -1, folder.path());
    ASSERT_TRUE(resumed.events.start.resume);
    EXPECT_EQ(resumed.events.start.resume->step, kept);
    EXPECT_EQ(testing::loss_of(resumed.events.train.back()), testing::loss_of(straight.events.train.back()));
    EXPECT_TRUE(testing::bitwise_equal(tensors_of(resumed), tensors_of(straight)));
  }
}

// Identifies an image of the synthetic data set by its first value, which differs between images.
double identity_of(const torch::Tensor& image) { return image.flatten()[0].item<double>(); }

TEST(Resume, AnotherNumberOfRanksTrainsTheRestOfAnEpoch) {
  const auto text = resume_text(kConvolution);
  const Overrides overrides = {"dataset.train_transforms=[]"};
  std::multiset<double> seen;
  std::mutex mutex;
  int64_t step = 0;
  int64_t taken = 0;
  const auto take = [&](int world_size, int64_t most_steps) {
    int64_t next_step = step, next_taken = taken;
    testing::run_ranks(world_size, [&](distributed::ProcessGroups& groups) {
      testing::SmallSession session(text, overrides, make_ranks(groups));
      auto& parts = session.parts();
      const auto part = rest_of_epoch(parts.data.plan, /*epoch=*/1, step, taken);
      const int64_t end = std::min(part.num_steps, most_steps);
      parts.data.begin(part, step);
      for (int64_t i = 0; i < end; ++i) {
        const auto& batch = parts.data.next();
        const std::lock_guard lock(mutex);
        for (int64_t image = 0; image < batch.size; ++image) seen.insert(identity_of(batch.images[image]));
      }
      if (groups.world()->rank() != 0) return;
      next_step = step + end;
      next_taken = end_sample_of(parts.data.plan, part, next_step - 1);
    });
    step = next_step;
    taken = next_taken;
  };
  take(2, 1);
  take(3, 1);
  take(1, 1);
  take(4, 100);
  EXPECT_EQ(taken, 50);
  EXPECT_EQ(step, 5);
  EXPECT_EQ(seen.size(), 50U);
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 50U);
}

TEST(Resume, ARunResumesWithAnotherNumberOfRanks) {
  const auto text = resume_text(kNorm);
  const Overrides overrides = {"runtime.dtype=float64"};
  const auto straight = train_on(1, text, overrides, -1, {});
  const TemporaryFolder folder;
  train_on(2, text, overrides, 2, folder.path());
  train_on(3, text, overrides, 2, folder.path());
  train_on(1, text, overrides, 9, folder.path());
  const auto run = train_on(4, text, overrides, -1, folder.path());
  ASSERT_TRUE(run.done);
  EXPECT_EQ(run.events.end.step, straight.events.end.step);
  // The global batch is the same, so the steps equal those of one rank except for rounding.
  const auto ours = tensors_of(run);
  const auto theirs = tensors_of(straight);
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_LT((ours[i] - theirs[i]).abs().max().item<double>(), 1e-9);
  const auto train_loss = [](const SmallRun& of) { return reporting::value_of(of.events.epochs.back().train_metrics, "loss").value(); };
  EXPECT_NEAR(train_loss(run), train_loss(straight), 1e-9);
}

TEST(Resume, RejectsCheckpointsThatDoNotFit) {
  const TemporaryFolder folder;
  const auto text = resume_text(kConvolution);
  train_on(1, text, {}, 2, folder.path());
  const auto resume = [&](const Overrides& overrides) { testing::train_text(text, overrides, -1, {}, folder.path()); };
  const auto expect = [&](const Overrides& overrides, const std::string& what) {
    EXPECT_THAT([&] { resume(overrides); }, ThrowsMessage<CheckpointError>(HasSubstr("step_00000002.pt: " + what)));
  };
  expect({"dataset.num_train=51"}, "num_train: the run was trained on 50 samples, but the data set has 51; use the same data set");
  expect({"model={name: resnet20}"}, "model: does not contain conv1.weight, bn1.weight");
  expect({"runtime.dtype=float64"}, "model.conv.weight: is Float");
}

}  // namespace
}  // namespace trainer::engine
