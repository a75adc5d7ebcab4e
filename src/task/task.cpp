#include "task/task.h"

#include <fmt/format.h>

#include "task/classification.h"
#include "task/views.h"

namespace trainer::task {
namespace {

class Regression : public Task {
 public:
  using Task::Task;

  reporting::MetricColumns metrics() const override { return {.train = {loss_info()}, .validation = {loss_info()}}; }
  std::string default_metric() const override { return loss_info().name; }
  TrainMeter make_train_meter(torch::Device device) const override { return {device, {}}; }

  std::unique_ptr<ValidationMeter> make_validation_meter(torch::Device device, int64_t /*num_classes*/,
                                                         int64_t num_batches) const override {
    return std::make_unique<ValidationMeter>(device, num_batches);
  }

  std::vector<Mismatch> mismatches(const Setup& setup) const override {
    std::vector<Mismatch> found;
    if (setup.num_classes > 0) {
      found.push_back({"loss.name", fmt::format("{} needs floating-point targets, but {} gives class labels", setup.loss, setup.dataset)});
    }
    if (setup.monitor != "auto" && setup.monitor != "validation/" + default_metric()) {
      found.push_back({"checkpoint.monitor", fmt::format("{} has no classes, so that only its loss is measured; choose validation/{}",
                                                         setup.loss, default_metric())});
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

Task::Pass Task::with_loss(torch::Tensor outputs, const torch::Tensor& targets) const {
  // A mean over no samples is NaN, but the gradient of an empty batch is zero.
  auto loss = outputs.size(0) > 0 ? (*loss_)(outputs, targets) : outputs.sum() * 0;
  return {.outputs = std::move(outputs), .loss = std::move(loss)};
}

std::unique_ptr<Task> make_regression(std::unique_ptr<nn::Loss> loss) { return std::make_unique<Regression>(std::move(loss)); }

std::unique_ptr<Task> make_task(std::unique_ptr<nn::Loss> loss) {
  return loss->has_classes() ? make_classification(std::move(loss)) : make_regression(std::move(loss));
}

reporting::MetricColumns all_metrics() {
  reporting::MetricColumns all;
  for (const auto& task : {make_classification(nullptr), make_regression(nullptr)}) {
    const auto metrics = task->metrics();
    add_missing(all.train, metrics.train);
    add_missing(all.validation, metrics.validation);
  }
  return all;
}

MonitorChoices monitor_choices() {
  const auto name = [](const std::string& metric) { return "validation/" + metric; };
  MonitorChoices choices;
  const auto columns = all_metrics().validation;
  for (size_t i = 1; i < columns.size(); ++i) choices.names.push_back(name(columns[i].name));
  choices.names.push_back(name(columns[0].name));
  choices.default_doc = fmt::format("{}, or {} with a loss that has no classes", name(make_classification(nullptr)->default_metric()),
                                    name(make_regression(nullptr)->default_metric()));
  return choices;
}

}  // namespace trainer::task
