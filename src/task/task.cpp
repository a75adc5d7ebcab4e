#include "task/task.h"

#include <fmt/format.h>

#include "task/classification.h"
#include "task/regression.h"

namespace trainer::task {
namespace {

void add_new(std::vector<reporting::MetricInfo>& to, const std::vector<reporting::MetricInfo>& from) {
  for (const auto& info : from) {
    if (std::ranges::find(to, info.name, &reporting::MetricInfo::name) == to.end()) to.push_back(info);
  }
}

}  // namespace

Task::Pass Task::forward(models::Model& model, const torch::Tensor& images, const torch::Tensor& targets) const {
  auto outputs = model.forward(images);
  // A mean over nothing is NaN, but an empty batch's part of the gradient is zero.
  auto loss = images.size(0) > 0 ? (*loss_)(outputs, targets) : outputs.sum() * 0;
  return {.outputs = std::move(outputs), .loss = std::move(loss)};
}

std::unique_ptr<Task> make_task(std::unique_ptr<nn::Loss> loss) {
  return loss->has_classes() ? make_classification(std::move(loss)) : make_regression(std::move(loss));
}

reporting::MetricColumns all_metrics() {
  reporting::MetricColumns all;
  for (const auto& task : {make_classification(nullptr), make_regression(nullptr)}) {
    const auto metrics = task->metrics();
    add_new(all.train, metrics.train);
    add_new(all.validation, metrics.validation);
  }
  return all;
}

config::MonitorChoices monitor_choices() {
  const auto name = [](const std::string& metric) { return "validation/" + metric; };
  config::MonitorChoices choices;
  const auto columns = all_metrics().validation;
  for (size_t i = 1; i < columns.size(); ++i) choices.names.push_back(name(columns[i].name));
  choices.names.push_back(name(columns[0].name));
  choices.default_doc = fmt::format("{}, or {} with a loss that has no classes", name(make_classification(nullptr)->default_metric()),
                                    name(make_regression(nullptr)->default_metric()));
  return choices;
}

}  // namespace trainer::task
