// Any number of ranks gives the results that one rank gives on the joined batch.

#include "tests/testing/ranks.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "tests/testing/small_run.h"
#include "train/engine/validations.h"
#include "trainer/error.h"

namespace trainer::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// 26 samples in batches of 12: two full ones and one of 2, in which ranks 2 and 3 of four have no sample.
std::string experiment_text(const std::string& model, const std::string& shape = "[3, 32, 32]") {
  return fmt::format(
      "experiment: ranks\n"
      "model: {}\n"
      "dataset: {{name: synthetic, shape: {}, num_classes: 10, num_train: 26, num_validation: 23}}\n"
      "dataloader: {{global_batch_size: 12, drop_last: false, shards: exact}}\n"
      "optimizer: {{name: sgd, lr: 0.001, momentum: 0.9, weight_decay: 5.0e-4}}\n"
      "validation: {{batch_size: 4}}\n"
      "runtime: {{dtype: float64, threads: 1}}\n"
      "training: {{epochs: 4}}\n"
      "logging: {{every_steps: 1}}\n",
      model, shape);
}
const std::string kResNet = "{name: resnet20}";
const std::string kWithoutNorm = "{name: demo_conv}";
// Some frozen layers come after a trained layer.
const std::string kFrozen = "{name: resnet20, freeze: [conv1, bn1, layer1, layer2.0.bn1, layer3.2]}";

// The runs of all ranks, in the order of the ranks.
std::vector<testing::SmallRun> train_ranks(int world_size, const std::string& text, const std::vector<std::string>& overrides = {}) {
  std::vector<testing::SmallRun> runs(static_cast<size_t>(world_size));
  testing::run_ranks(world_size, [&](distributed::ProcessGroups& groups) {
    auto run = testing::train_text(text, overrides, -1, make_ranks(groups));
    run.leave_ranks();
    runs[static_cast<size_t>(groups.world()->rank())] = std::move(run);
  });
  return runs;
}

// max |a - b| / max |b|.
double difference(const torch::Tensor& a, const torch::Tensor& b) {
  const double largest = b.abs().max().item<double>();
  return largest == 0 ? a.abs().max().item<double>() : (a - b).abs().max().item<double>() / largest;
}

std::vector<double> losses_of(const testing::SmallRun& run) {
  std::vector<double> losses;
  for (const auto& event : run.events.train) losses.push_back(testing::loss_of(event));
  return losses;
}

class GradientRecorder : public TrainingHook {
 public:
  explicit GradientRecorder(const models::Model& model) : model_(model) {}
  bool needs_gradients(int64_t) const override { return true; }
  void on_gradients(int64_t) override {
    for (const auto& parameter : model_.parameters()) {
      if (parameter.requires_grad()) recorded.push_back(parameter.grad().clone());
    }
  }
  std::vector<torch::Tensor> recorded;

 private:
  const models::Model& model_;
};

// Returns gradients and buffers after the backward passes of step number `step` of the first epoch, computed from the initial weights.
std::vector<torch::Tensor> one_step(const std::string& text, const Ranks& ranks, int64_t step) {
  testing::SmallSession session(text, {}, ranks);
  auto& parts = session.parts();
  parts.network.model->train();
  auto meter = parts.network.task->make_train_meter(parts.network.placement.device);
  TrainStep train_step(parts, 1, std::nullopt, meter);
  parts.data.begin(rest_of_epoch(parts.data.plan, 0), 0);
  for (int64_t i = 0; i < step; ++i) parts.data.next();
  GradientRecorder gradients(*parts.network.model);
  train_step.run({{.step = step, .num_group_samples = samples_in_step(parts.data.plan, rest_of_epoch(parts.data.plan, 0), step)}},
                 [&]() -> const data::Batch& { return parts.data.next(); }, /*lr=*/0, {&gradients});
  auto state = gradients.recorded;
  for (const auto& buffer : parts.network.model->buffers()) state.push_back(buffer.to(torch::kFloat64, false, /*copy=*/true));
  return state;
}

TEST(Ranks, AStepFromEqualWeightsEqualsThatOfTheJointBatch) {
  const std::string none;
  const std::string weights = "loss: {class_weights: [0.5, 0.25, 3, 1, 0.125, 2, 1.5, 0.75, 4, 1.25]}\n";
  for (const auto& [model, loss] : {std::pair(kResNet, none), {kResNet, weights}, {kWithoutNorm, none}, {kFrozen, none}}) {
    const auto text = experiment_text(model) + loss;
    for (const int64_t step : {0, 2}) {
      const auto expected = one_step(text, {}, step);
      for (const int world_size : {2, 3, 4}) {
        testing::run_ranks(world_size, [&](distributed::ProcessGroups& groups) {
          const auto state = one_step(text, make_ranks(groups), step);
          ASSERT_EQ(state.size(), expected.size());
          for (size_t i = 0; i < state.size(); ++i) {
            EXPECT_LE(difference(state[i], expected[i]), 1e-12)
                << model << ", step " << step << ", " << world_size << " ranks, tensor " << i;
          }
        });
      }
    }
  }
}

TEST(Ranks, TheSecondPassOfSamDoesNotUpdateRunningStatistics) {
  const auto text = experiment_text(kResNet);
  auto with_sam = text;
  with_sam.replace(with_sam.find("{name: sgd"), std::string("{name: sgd").size(), "{name: sam");
  const auto num_buffers = static_cast<std::ptrdiff_t>(testing::SmallSession(text, {}).parts().network.model->buffers().size());
  for (const int world_size : {1, 2}) {
    testing::run_ranks(world_size, [&](distributed::ProcessGroups& groups) {
      const auto ranks = make_ranks(groups);
      const auto expected = one_step(text, ranks, 0);
      const auto state = one_step(with_sam, ranks, 0);
      ASSERT_EQ(state.size(), expected.size());
      EXPECT_TRUE(std::equal(state.end() - num_buffers, state.end(), expected.end() - num_buffers,
                             [](const auto& a, const auto& b) { return torch::equal(a, b); }))
          << world_size << " ranks";
    });
  }
}

TEST(Ranks, ParametersHaveTheSameBitsAfterEveryStep) {
  for (const int world_size : {2, 3, 4}) {
    testing::run_ranks(world_size, [&](distributed::ProcessGroups& groups) {
      testing::SmallSession session(experiment_text(kResNet), {}, make_ranks(groups));
      auto& parts = session.parts();
      parts.network.model->train();
      auto meter = parts.network.task->make_train_meter(torch::kCPU);
      TrainStep train_step(parts, 1, std::nullopt, meter);
      for (int64_t step = 0; step < 6; ++step) {
        const int64_t batch = step % parts.data.plan.batches_per_epoch;
        if (batch == 0) parts.data.begin(rest_of_epoch(parts.data.plan, step), 0);
        train_step.run(
            {{.step = step, .num_group_samples = samples_in_step(parts.data.plan, rest_of_epoch(parts.data.plan, 0), batch)}},
            [&]() -> const data::Batch& { return parts.data.next(); }, 0.01);
        for (const auto& tensor : testing::state_of(parts)) {
          const auto all = groups.world()->all_gather(tensor.detach());
          for (int64_t rank = 1; rank < world_size; ++rank) EXPECT_TRUE(torch::equal(all[rank], all[0])) << "step " << step;
        }
      }
    });
  }
}

TEST(Ranks, CurvesEqualThoseOfOneProcess) {
  using Overrides = std::vector<std::string>;
  const Overrides groups = {"optimizer.groups=[{parameters: [fc], lr_factor: 4, weight_decay: 0}]"};
  const Overrides sizes = {"dataset.size_schedule=[{size: 16, until: 0.25}, {size: 24, until: 0.5}]"};
  for (const auto& [model, overrides] :
       {std::pair(kResNet, Overrides()), {kResNet, sizes}, {kWithoutNorm, Overrides()}, {kFrozen, groups}}) {
    const auto text = experiment_text(model);
    const auto one = testing::train_text(text, overrides);
    ASSERT_EQ(one.events.train.size(), 12U);
    for (const int world_size : {2, 3, 4}) {
      const auto runs = train_ranks(world_size, text, overrides);
      for (size_t rank = 0; rank < runs.size(); ++rank) {
        const auto& run = runs[rank];
        ASSERT_EQ(run.events.train.size(), 12U) << "rank " << rank;
        for (size_t i = 0; i < 10; ++i) {
          EXPECT_NEAR(testing::loss_of(run.events.train[i]), testing::loss_of(one.events.train[i]),
                      1e-10 * testing::loss_of(one.events.train[i]))
              << model << ", " << world_size << " ranks, step " << i;
          EXPECT_TRUE(testing::value_of(run.events.train[i], "top1"));
          EXPECT_EQ(testing::value_of(run.events.train[i], "top1"), testing::value_of(one.events.train[i], "top1"));
        }
        EXPECT_TRUE(testing::bitwise_equal(testing::state_of(run.parts()), testing::state_of(runs[0].parts())))
            << "rank " << rank << " of " << world_size << " has other parameters";
      }
    }
  }
}

TEST(Ranks, AveragedParametersEqualThoseOfOneProcess) {
  const auto text = experiment_text(kResNet);
  const auto one = testing::train_text(text, {"training.ema.decay=0.8"});
  const auto runs = train_ranks(3, text, {"training.ema.decay=0.8"});
  for (const auto& run : runs) {
    ASSERT_EQ(run.events.validation.size(), one.events.validation.size());
    for (size_t i = 0; i < one.events.validation.size(); ++i) {
      const double expected = testing::ema_value_of(one.events.validation[i], "loss").value();
      EXPECT_NEAR(testing::ema_value_of(run.events.validation[i], "loss").value(), expected, 1e-9 * expected) << "epoch " << i;
      EXPECT_EQ(testing::ema_value_of(run.events.validation[i], "top1"), testing::ema_value_of(one.events.validation[i], "top1"));
    }
    EXPECT_TRUE(testing::bitwise_equal(state::tensors_of(run.parts().ema->state()), state::tensors_of(runs[0].parts().ema->state())));
  }
}

// All evaluate the same initial parameters, so that a difference can only come from the evaluation.
TEST(Ranks, EvaluationHasTheSameDigitsForAnyNumberOfRanks) {
  const auto text = experiment_text(kResNet);
  for (const auto tta : {task::TestTimeAugmentation::kNone, task::TestTimeAugmentation::kFlipAndShift}) {
    const auto evaluate_with = [&](const Ranks& ranks) {
      testing::SmallSession session(text, {}, ranks);
      return evaluate(session.parts(), tta, [](int64_t) { return false; }).value().model;
    };
    const auto one = evaluate_with({});
    EXPECT_EQ(one.num_samples, 23);
    for (const int world_size : {2, 3, 4}) {
      testing::run_ranks(world_size, [&](distributed::ProcessGroups& groups) {
        const auto scores = evaluate_with(make_ranks(groups));
        EXPECT_EQ(testing::loss_of(scores), testing::loss_of(one));
        EXPECT_EQ(scores.num_samples, one.num_samples);
        for (const char* name : {"top1", "top5", "macro_f1"}) {
          EXPECT_TRUE(testing::value_of(scores, name)) << name;
          EXPECT_EQ(testing::value_of(scores, name), testing::value_of(one, name)) << name;
        }
        EXPECT_EQ(scores.classes.confusion, one.classes.confusion);
      });
    }
  }
}

TEST(Ranks, AccumulatedMicroStepsEqualOneBatch) {
  const auto text = experiment_text(kWithoutNorm);
  const auto whole = train_ranks(2, text);
  const auto parts = train_ranks(2, text, {"training.accumulation_steps=3"});
  ASSERT_EQ(whole[0].events.start.steps_per_epoch, parts[0].events.start.steps_per_epoch);
  const auto a = testing::state_of(whole[0].parts());
  const auto b = testing::state_of(parts[0].parts());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_LE(difference(a[i], b[i]), 1e-13);
}

TEST(Ranks, PaddedAndCutShardsHaveTheSameNumberOfSteps) {
  const auto text = experiment_text(kWithoutNorm);
  // 26 samples on four ranks are padded to 28 or cut to 24, in joined batches of 12.
  const auto padded = train_ranks(4, text, {"dataloader.shards=pad", "training.epochs=1"});
  EXPECT_EQ(padded[0].events.start.steps_per_epoch, 3);
  const auto cut = train_ranks(4, text, {"dataloader.shards=drop", "training.epochs=1"});
  EXPECT_EQ(cut[0].events.start.steps_per_epoch, 2);
  for (const auto& runs : {&padded, &cut}) {
    for (const auto& run : *runs) {
      EXPECT_TRUE(run.done);
      EXPECT_TRUE(testing::bitwise_equal(testing::state_of(run.parts()), testing::state_of((*runs)[0].parts())));
    }
  }
}

TEST(Ranks, AStopRequestAtOneRankStopsAllAtTheSameStep) {
  std::vector<int64_t> steps(3);
  testing::run_ranks(3, [&](distributed::ProcessGroups& groups) {
    const int rank = groups.world()->rank();
    // Only rank 1 receives a stop request, after two steps.
    const auto run = testing::train_text(experiment_text(kWithoutNorm), {}, rank == 1 ? 2 : -1, make_ranks(groups));
    EXPECT_FALSE(run.done);
    EXPECT_EQ(run.events.end.reason, "stopped");
    steps[static_cast<size_t>(rank)] = run.events.end.step;
  });
  // The ranks exchange stop requests through shared memory, so the others learn of the request in the same step.
  EXPECT_EQ(steps, (std::vector<int64_t>{2, 2, 2}));
}

TEST(Ranks, AFailureOfRank0AtTheEndIsTheFailureOfAll) {
  struct FullDisk : reporting::Sink {
    void on_end(const reporting::EndEvent& event) override {
      reasons.push_back(event.reason);
      if (fails) throw CheckpointError("cannot write summary.json: No space left on device");
    }
    bool fails = false;
    std::vector<std::string> reasons;
  };
  testing::run_ranks(3, [&](distributed::ProcessGroups& groups) {
    const int rank = groups.world()->rank();
    testing::SmallSession session(experiment_text(kWithoutNorm), {"training.epochs=1"}, make_ranks(groups));
    FullDisk sink;
    sink.fails = rank == 0;
    try {
      session.session.train(sink, [] { return false; });
      FAIL() << "rank " << rank << " reports success";
    } catch (const AgreedError& error) {
      const std::string reason = "cannot write summary.json: No space left on device";
      EXPECT_EQ(error.what(), rank == 0 ? reason
                                        : fmt::format("rank 0 ({}) failed at the end of the run: {}; this rank exits",
                                                      to_string(distributed::this_process()), reason));
      EXPECT_EQ(error.exit_code(), rank == 0 ? ExitCode::kCheckpoint : ExitCode::kPeer);
    }
    EXPECT_EQ(sink.reasons.back(), "failed");
    EXPECT_EQ(sink.reasons.size(), rank == 0 ? 2U : 1U);  // no other rank has reported that it is done
  });
}

TEST(Ranks, SamComputesWhatOneProcessComputes) {
  for (const auto& model : {kResNet, kWithoutNorm}) {
    const auto text = experiment_text(model);
    const std::vector<std::string> sam = {"optimizer={name: sam, lr: 0.01, momentum: 0.9}"};
    const auto one = testing::train_text(text, sam);
    const auto expected = losses_of(one);
    ASSERT_EQ(expected.size(), 12U);
    for (const int world_size : {2, 3}) {
      const auto losses = losses_of(train_ranks(world_size, text, sam)[0]);
      const auto apart = losses_of(train_ranks(world_size, text, {sam[0], "optimizer.perturbation=rank"})[0]);
      for (size_t i = 0; i < 10; ++i) {
        EXPECT_NEAR(losses[i], expected[i], 1e-10 * expected[i]) << model << ", " << world_size << " ranks, step " << i;
      }
      EXPECT_GT(std::abs(apart[9] - expected[9]), 1e-6 * expected[9]) << model << ", " << world_size << " ranks";
    }
  }
}

TEST(Ranks, SamTrainsAndKeepsRanksEqual) {
  const auto runs = train_ranks(3, experiment_text(kResNet), {"optimizer={name: sam, lr: 0.01, momentum: 0.9}", "training.epochs=2"});
  for (const auto& run : runs) EXPECT_TRUE(testing::bitwise_equal(testing::state_of(run.parts()), testing::state_of(runs[0].parts())));
  EXPECT_THAT(
      [] {
        testing::train_text(experiment_text(kWithoutNorm), {"optimizer={name: sam, lr: 0.01}", "training.accumulation_steps=2"});
      },
      ThrowsMessage<UsageError>(HasSubstr("optimizer.name: sam processes each batch twice")));
}

TEST(Ranks, Float16WithTheGradScalerKeepsRanksEqual) {
  const auto runs = train_ranks(2, experiment_text(kWithoutNorm),
                                {"runtime.dtype=float32", "amp={enabled: true, dtype: float16, init_scale: 1.0e30, growth_interval: 3}"});
  const auto& lines = runs[0].events.train;
  ASSERT_EQ(lines.size(), 12U);
  // The first scale overflows float16: steps are skipped until the scale is low enough.
  EXPECT_GT(lines.front().skipped_steps.value(), 0);
  EXPECT_LT(lines.back().grad_scale.value(), 1e30);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(runs[rank].events.train.back().grad_scale, lines.back().grad_scale);
    EXPECT_TRUE(testing::bitwise_equal(testing::state_of(runs[rank].parts()), testing::state_of(runs[0].parts())));
  }
}

TEST(Ranks, CurvesDoNotDependOnHowAGlobalBatchIsDivided) {
  // A batch of 7 samples is divided into up to ten parts (five ranks, two micro-steps), some of which are empty.
  const auto text = experiment_text(kWithoutNorm);
  for (const char* micro_steps : {"training.accumulation_steps=1", "training.accumulation_steps=2"}) {
    const std::vector<std::string> overrides = {"dataloader.global_batch_size=7", micro_steps};
    const auto one = testing::train_text(text, overrides);
    for (const int world_size : {2, 3, 5}) {
      for (const auto& run : train_ranks(world_size, text, overrides)) {
        ASSERT_EQ(run.events.train.size(), one.events.train.size());
        for (size_t i = 0; i < one.events.train.size(); ++i) {
          const double expected = testing::loss_of(one.events.train[i]);
          EXPECT_NEAR(testing::loss_of(run.events.train[i]), expected, 1e-10 * expected) << world_size << " ranks, step " << i;
          EXPECT_EQ(testing::value_of(run.events.train[i], "top1"), testing::value_of(one.events.train[i], "top1"));
        }
      }
    }
  }
}

}  // namespace
}  // namespace trainer::engine
