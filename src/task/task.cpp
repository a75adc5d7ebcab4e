#include "task/task.h"

#include <fmt/format.h>

#include "task/classification.h"
#include "task/views.h"
#include "trainer/error.h"

namespace trainer::task {
namespace {

struct NoOptions {
  void describe(KeyTable&) {}
};

class Regression : public Task {
 public:
  using Task::Task;

  std::vector<Mismatch> mismatches(const Setup& setup) const override {
    std::vector<Mismatch> found;
    if (setup.num_classes > 0) {
      found.push_back({"loss.name", fmt::format("{} needs floating-point targets, but {} gives class labels", setup.loss, setup.dataset)});
    }
    return found;
  }
};

void add_missing(std::vector<reporting::MetricInfo>& to, const std::vector<reporting::MetricInfo>& from) {
  for (const auto& info : from) {
    if (std::ranges::find(to, info.name, &reporting::MetricInfo::name) == to.end()) to.push_back(info);
  }
}

}  // namespace

Task::Pass Task::forward(models::Model& model, const torch::Tensor& images, const torch::Tensor& targets) const {
  return with_loss(model.forward(images), targets);
}

Task::Pass Task::evaluate(models::Model& model, const torch::Tensor& images, const torch::Tensor& targets, TestTimeAugmentation tta) const {
  return with_loss(average_over_views(images, tta, [&model](const torch::Tensor& view) { return model.forward(view); }), targets);
}

std::unique_ptr<ValidationMeter> Task::make_validation_meter(torch::Device device, int64_t /*num_classes*/, int64_t num_batches) const {
  return std::make_unique<ValidationMeter>(device, num_batches);
}

reporting::MetricColumns Task::metrics() const {
  reporting::MetricColumns columns{.train = {loss_info()}, .validation = {loss_info()}};
  for (const auto& metric : train_metrics()) columns.train.push_back(metric.info);
  for (const auto& info : validation_metrics()) columns.validation.push_back(info);
  return columns;
}

Task::Pass Task::with_loss(torch::Tensor outputs, const torch::Tensor& targets) const {
  // A mean over no samples is NaN, but the gradient of an empty batch is zero.
  auto loss = outputs.size(0) > 0 ? (*loss_)(outputs, targets) : outputs.sum() * 0;
  return {.outputs = std::move(outputs), .loss = std::move(loss)};
}

std::unique_ptr<Task> make_regression(std::unique_ptr<nn::Loss> loss) {
  if (loss != nullptr && loss->has_classes()) {
    throw UsageError("regression needs a loss of numbers, such as mse; choose one, or leave the task out");
  }
  return std::make_unique<Regression>(std::move(loss));
}

TaskRegistry& task_registry() {
  static auto registry = [] {
    TaskRegistry tasks("task");
    tasks.add<NoOptions>("classification", "One class of each image; measures top1, top5, macro F1 and the calibration error.",
                         [](const NoOptions&, std::unique_ptr<nn::Loss> loss) { return make_classification(std::move(loss)); });
    tasks.add<NoOptions>("regression", "Numbers for each sample; measures the loss.",
                         [](const NoOptions&, std::unique_ptr<nn::Loss> loss) { return make_regression(std::move(loss)); });
    return tasks;
  }();
  return registry;
}

std::string default_task(const nn::Loss& loss) { return loss.has_classes() ? "classification" : "regression"; }

reporting::MetricColumns all_metrics() {
  reporting::MetricColumns all;
  for (const auto& name : task_registry().names()) {
    const auto metrics = task_registry().make(task_registry().configure(name), nullptr)->metrics();
    add_missing(all.train, metrics.train);
    add_missing(all.validation, metrics.validation);
  }
  return all;
}

}  // namespace trainer::task
