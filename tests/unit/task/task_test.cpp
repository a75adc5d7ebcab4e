#include "task/task.h"

#include <gmock/gmock.h>

#include "task/classification.h"

namespace trainer::task {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;

// The sum of the outputs' distances to the targets.
class Distance : public nn::Loss {
 public:
  explicit Distance(bool has_classes) : has_classes_(has_classes) {}
  torch::Tensor operator()(const torch::Tensor& outputs, const torch::Tensor& targets) const override {
    return (outputs - targets).abs().sum();
  }
  bool has_classes() const override { return has_classes_; }

 private:
  bool has_classes_;
};

struct TwiceOptions : models::ModelOptions {
  void describe(KeyTable&) {}
  std::vector<int64_t> input_shape() const override { return {1}; }
  int64_t num_outputs() const override { return 1; }
};

class Twice : public models::Model {
 public:
  Twice() : Model(TwiceOptions()) {}
  torch::Tensor forward(const torch::Tensor& x) override { return 2 * x; }
};

class LeftColumn : public models::Model {
 public:
  LeftColumn() : Model(TwiceOptions()) {}
  torch::Tensor forward(const torch::Tensor& x) override { return x.select(3, 0).flatten(1); }
};

std::vector<std::string> names_of(const std::vector<reporting::MetricInfo>& metrics) {
  std::vector<std::string> names;
  for (const auto& metric : metrics) names.push_back(metric.name);
  return names;
}

TEST(Task, TheLossChoosesTheTask) {
  EXPECT_EQ(make_task(std::make_unique<Distance>(true))->default_metric(), "top1");
  EXPECT_EQ(make_task(std::make_unique<Distance>(false))->default_metric(), "loss");
}

TEST(Task, TheLossIsTheFirstMetric) {
  const auto classification = make_classification(nullptr)->metrics();
  EXPECT_EQ(names_of(classification.train).front(), "loss");
  EXPECT_EQ(names_of(classification.validation).front(), "loss");
  EXPECT_THAT(names_of(classification.validation), Contains(make_classification(nullptr)->default_metric()));
  const auto regression = make_regression(nullptr)->metrics();
  EXPECT_THAT(names_of(regression.train), ElementsAre("loss"));
  EXPECT_THAT(names_of(regression.validation), ElementsAre("loss"));
  EXPECT_FALSE(regression.validation[0].higher_is_better);
}

// Checkpoints, metrics.csv and the configuration reference of earlier versions have these.
TEST(Task, TheMetricsOfAllTasks) {
  EXPECT_THAT(names_of(all_metrics().train), IsSupersetOf({"loss", "top1"}));
  EXPECT_THAT(names_of(all_metrics().validation), IsSupersetOf({"loss", "top1", "top5", "macro_f1"}));
  EXPECT_THAT(monitor_choices().names, IsSupersetOf({"validation/top1", "validation/top5", "validation/macro_f1", "validation/loss"}));
  EXPECT_EQ(make_classification(nullptr)->make_train_meter(torch::kCPU).num_sums(),
            make_regression(nullptr)->make_train_meter(torch::kCPU).num_sums());
}

TEST(Task, ForwardGivesOutputsAndLoss) {
  Twice model;
  const auto task = make_task(std::make_unique<Distance>(false));
  const auto pass = task->forward(model, torch::tensor({{1.0}, {3.0}}), torch::tensor({{0.0}, {0.0}}));
  EXPECT_TRUE(torch::equal(pass.outputs, torch::tensor({{2.0}, {6.0}})));
  EXPECT_EQ(pass.loss.item<double>(), 8);
  const auto empty = task->forward(model, torch::zeros({0, 1}), torch::zeros({0, 1}));
  EXPECT_EQ(empty.loss.item<double>(), 0);
}

TEST(Task, EvaluateAveragesTheOutputsOfTheViewsBeforeTheLoss) {
  LeftColumn model;
  const auto task = make_task(std::make_unique<Distance>(false));
  const auto images = torch::tensor({1.0, 3.0}).view({1, 1, 1, 2});
  const auto targets = torch::tensor({{2.0}});
  const auto none = task->evaluate(model, images, targets, TestTimeAugmentation::kNone);
  EXPECT_EQ(none.outputs.item<double>(), 1);
  EXPECT_EQ(none.loss.item<double>(), 1);
  // The loss is 1 for each of the views.
  const auto flip = task->evaluate(model, images, targets, TestTimeAugmentation::kFlip);
  EXPECT_EQ(flip.outputs.item<double>(), 2);
  EXPECT_EQ(flip.loss.item<double>(), 0);
  const auto empty = task->evaluate(model, images.narrow(0, 0, 0), targets.narrow(0, 0, 0), TestTimeAugmentation::kFlip);
  EXPECT_EQ(empty.loss.item<double>(), 0);
}

TEST(Task, NamesTheProblemsOfASetup) {
  const auto classification = make_classification(nullptr);
  const Task::Setup ten_classes = {.loss = "cross_entropy", .dataset = "images", .num_classes = 10, .monitor = "auto"};
  EXPECT_THAT(classification->mismatches(ten_classes), ElementsAre());
  auto setup = ten_classes;
  setup.num_classes = 4;
  for (const char* monitor : {"auto", "validation/loss", "validation/top1", "validation/macro_f1"}) {
    setup.monitor = monitor;
    EXPECT_THAT(classification->mismatches(setup), ElementsAre()) << monitor;
  }
  setup.monitor = "validation/top5";
  EXPECT_THAT(
      classification->mismatches(setup),
      ElementsAre(Task::Mismatch{"checkpoint.monitor", "validation/top5 needs five classes, but images has 4; choose validation/top1"}));
  setup = {.loss = "cross_entropy", .dataset = "vectors", .num_classes = 0, .monitor = "auto"};
  EXPECT_THAT(classification->mismatches(setup),
              ElementsAre(Task::Mismatch{"loss.name", "cross_entropy needs class labels, but vectors gives floating-point targets"}));

  const auto regression = make_regression(nullptr);
  setup = {.loss = "mse", .dataset = "images", .num_classes = 10, .monitor = "validation/top1"};
  EXPECT_THAT(
      regression->mismatches(setup),
      ElementsAre(Task::Mismatch{"loss.name", "mse needs floating-point targets, but images gives class labels"},
                  Task::Mismatch{"checkpoint.monitor", "mse has no classes, so that only its loss is measured; choose validation/loss"}));
  setup = {.loss = "mse", .dataset = "vectors", .num_classes = 0, .monitor = "validation/loss"};
  EXPECT_THAT(regression->mismatches(setup), ElementsAre());
}

}  // namespace
}  // namespace trainer::task
