#include "train/engine/validations.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/metric_order.h"
#include "base/text.h"
#include "train/engine/evaluator.h"

namespace trainer::engine {

Validations::Validations(const LoopOptions& options, Parts& parts, RunState& run, reporting::Sink& reporter,
                         std::function<bool()> stop_agreed)
    : options_(options.validation),
      early_stopping_(options.early_stopping),
      parts_(parts),
      run_(run),
      reporter_(reporter),
      stop_agreed_(std::move(stop_agreed)),
      monitored_(monitored_metric(options.monitor, *parts.task)) {}

bool Validations::is_current() const { return run_.last_validation && run_.last_validation->step == run_.progress.step; }

bool Validations::is_due_within(const EpochPart& part) const {
  const int64_t step = run_.progress.step;
  const bool is_at_end = step == part.first_step + part.num_steps;
  return options_.every_steps && step > 0 && step % *options_.every_steps == 0 && !is_at_end && !is_current();
}

bool Validations::is_due_after(const EpochPart& part) const {
  if (options_.is_off()) return false;
  return part.is_last() || (options_.every_epochs && (part.epoch + 1) % *options_.every_epochs == 0) ||
         (options_.every_steps && run_.progress.step % *options_.every_steps == 0);
}

bool Validations::validate(const EpochPart& part, bool is_within_epoch) {
  const auto start = std::chrono::steady_clock::now();
  const auto evaluation = evaluate(parts_, options_.tta, stop_agreed_);
  if (!evaluation) return false;
  reporting::ValidationEvent event{.epoch = run_.progress.epoch,
                                   .num_epochs = part.num_epochs,
                                   .step = run_.progress.step,
                                   .metrics = evaluation->model.metrics,
                                   .num_samples = evaluation->model.num_samples,
                                   .classes = evaluation->model.classes,
                                   .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
                                   .is_within_epoch = is_within_epoch};
  if (evaluation->ema) {
    event.ema_metrics = evaluation->ema->metrics;
    std::erase_if(event.ema_metrics, [](const reporting::Metric& metric) { return metric.info.is_detail; });
  }
  const double value = reporting::value_of(event.metrics, monitored_.name).value();
  event.is_best = is_better(value, best_value(), monitored_.higher_is_better);
  reporter_.on_validation(event);
  run_.last_validation = event;
  if (event.is_best) run_.best_validation = event;
  if (auto& plateau = parts_.lr_schedule.plateau) plateau->observe(value, monitored_.higher_is_better);
  if (early_stopping_) run_.early_stopping.observe(value, monitored_.higher_is_better, early_stopping_->min_delta);
  return true;
}

std::optional<double> Validations::best_value() const {
  return run_.best_validation ? reporting::value_of(run_.best_validation->metrics, monitored_.name) : std::nullopt;
}

std::string Validations::reason_of_failure() const {
  if (!run_.last_validation || std::isfinite(best_value().value_or(NAN))) return "";
  return fmt::format(
      "validation/{} was not a finite number in any validation, so that no checkpoint is the best one; lower optimizer.lr, "
      "set training.max_grad_norm, or look at the validation images",
      monitored_.name);
}

std::string Validations::reason_of_end() const {
  if (!end_training()) return "";
  const auto& [best, num_not_better] = run_.early_stopping;
  const auto than = best ? fmt::format("{:.6g}", *best) : "NaN";
  return fmt::format("validation/{} was not better than {} in {} in a row (training.early_stopping)", monitored_.name, than,
                     counted(num_not_better, "validation"));
}

reporting::MetricInfo monitored_metric(const MonitorOptions& options, const task::Task& task) {
  const auto name = options.metric == "auto" ? task.default_metric() : options.metric.substr(options.metric.find('/') + 1);
  const auto metrics = task.metrics().validation;
  const auto info = std::ranges::find(metrics, name, &reporting::MetricInfo::name);
  TORCH_CHECK(info != metrics.end(), "the task does not measure ", name);
  auto metric = *info;
  if (options.mode != MonitorMode::kAuto) metric.higher_is_better = options.mode == MonitorMode::kMax;
  return metric;
}

}  // namespace trainer::engine
