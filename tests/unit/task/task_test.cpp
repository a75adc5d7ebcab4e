#include "train/task/task.h"

#include <gmock/gmock.h>

#include "train/task/classification.h"
#include "trainer/error.h"

namespace trainer::task {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using ::testing::ThrowsMessage;

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

std::unique_ptr<Task> make_task(const std::string& name, bool loss_has_classes) {
  return task_registry().make(task_registry().configure(name), std::make_unique<Distance>(loss_has_classes));
}

TEST(Task, TheLossChoosesTheTask) {
  for (const bool has_classes : {false, true}) {
    const auto task = make_task(default_task(Distance(has_classes)), has_classes);
    EXPECT_EQ(task->default_metric(), has_classes ? "top1" : "loss");
  }
}

TEST(Task, RefusesALossOfOtherTargets) {
  EXPECT_THAT([] { make_task("classification", false); },
              ThrowsMessage<UsageError>(
                  "classification needs a loss for class labels, such as cross_entropy; choose one, or remove the task section"));
  EXPECT_THAT([] { make_task("regression", true); },
              ThrowsMessage<UsageError>("regression needs a loss for numbers, such as mse; choose one, or remove the task section"));
}

TEST(Task, RefusesMetricsThatCannotBeMeasured) {
  const auto refused = [](ClassMetric metric, const std::string& message) {
    EXPECT_THAT([&] { add_class_metric(metric); }, ThrowsMessage<std::logic_error>(message));
  };
  const auto zero = [](const torch::Tensor&) { return 0.0; };
  for (const std::string name : {"loss", "top5"}) {
    refused({.info = {.name = name}, .from_confusion = zero}, "metric " + name + " is already registered");
  }
  for (const std::string name : {"", "top 1", "F1", "confusion", "seconds"}) {
    refused(
        {.info = {.name = name}, .from_confusion = zero},
        "a metric cannot be called \"" + name +
            "\", which is empty, reserved or has characters other than lower-case letters, digits and underscores; choose another name");
  }
  const std::string one = "metric zero: set exactly one of count and from_confusion";
  refused({.info = {.name = "zero"}}, one);
  refused({.info = {.name = "zero"},
           .count = [](const torch::Tensor& outputs, const torch::Tensor&) { return outputs; },
           .from_confusion = zero},
          one);
}

TEST(Task, TheLossIsTheFirstMetric) {
  const auto classification = make_classification(nullptr)->metrics();
  EXPECT_EQ(names_of(classification.train).front(), "loss");
  EXPECT_EQ(names_of(classification.validation).front(), "loss");
  EXPECT_THAT(names_of(classification.validation), Contains(make_classification(nullptr)->default_metric()));
  const auto regression = make_regression(nullptr)->metrics();
  EXPECT_THAT(names_of(regression.train), ElementsAre("loss", "mae"));
  EXPECT_THAT(names_of(regression.validation), ElementsAre("loss", "mae", "rmse", "r2"));
  EXPECT_FALSE(regression.validation[0].higher_is_better);
}

// Checkpoints, metrics.csv and the configuration reference of earlier versions have these metrics.
TEST(Task, TheMetricsOfAllTasks) {
  EXPECT_THAT(names_of(all_metrics().train), IsSupersetOf({"loss", "top1"}));
  EXPECT_THAT(names_of(all_metrics().validation), IsSupersetOf({"loss", "top1", "top5", "macro_f1"}));
}

TEST(Task, ForwardGivesOutputsAndLoss) {
  Twice model;
  const auto task = make_regression(std::make_unique<Distance>(false));
  const auto pass = task->forward(model, torch::tensor({{1.0}, {3.0}}), torch::tensor({{0.0}, {0.0}}));
  EXPECT_TRUE(torch::equal(pass.outputs, torch::tensor({{2.0}, {6.0}})));
  EXPECT_EQ(pass.loss.item<double>(), 8);
  const auto empty = task->forward(model, torch::zeros({0, 1}), torch::zeros({0, 1}));
  EXPECT_EQ(empty.loss.item<double>(), 0);
}

TEST(Task, EvaluateAveragesTheOutputsOfTheViewsBeforeTheLoss) {
  LeftColumn model;
  const auto task = make_regression(std::make_unique<Distance>(false));
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
  EXPECT_THAT(classification->mismatches(setup),
              ElementsAre(Task::Mismatch{"checkpoint.monitor",
                                         "validation/top5 needs at least 5 classes, but images has 4; choose validation/top1"}));
  setup = ten_classes;
  setup.has_masks = true;
  EXPECT_THAT(classification->mismatches(setup),
              ElementsAre(Task::Mismatch{"task.name",
                                         "classification needs one class label per image, but images has one per pixel; set "
                                         "task.name to a task for masks, which a plug-in must provide"}));
  setup = {.loss = "cross_entropy", .dataset = "vectors", .num_classes = 0, .monitor = "auto"};
  EXPECT_THAT(classification->mismatches(setup),
              ElementsAre(Task::Mismatch{
                  "loss.name",
                  "cross_entropy needs class labels, but vectors has floating-point targets; choose a loss for numbers, such as mse"}));

  const auto regression = make_regression(nullptr);
  setup = {.loss = "mse", .dataset = "images", .num_classes = 10, .monitor = "auto"};
  EXPECT_THAT(
      regression->mismatches(setup),
      ElementsAre(Task::Mismatch{
          "loss.name",
          "mse needs floating-point targets, but images has class labels; choose a loss for class labels, such as cross_entropy or bce"}));
  setup = {.loss = "mse", .dataset = "vectors", .num_classes = 0, .monitor = "validation/loss"};
  EXPECT_THAT(regression->mismatches(setup), ElementsAre());
}

}  // namespace
}  // namespace trainer::task
