#include "train/engine/validations.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/metric_order.h"
#include "base/text.h"
#include "device/libtorch_settings.h"
#include "train/engine/shared_batches.h"
#include "trainer/amp.h"

namespace trainer::engine {

Validations::Validations(const LoopOptions& options, Parts& parts, RunState& run, reporting::Sink& reporter,
                         std::function<bool()> stop_agreed)
    : options_(options.validation),
      early_stopping_(options.early_stopping),
      parts_(parts),
      run_(run),
      reporter_(reporter),
      stop_agreed_(std::move(stop_agreed)),
      monitored_(monitored_metric(options.monitor, *parts.network.task)) {}

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

int64_t Validations::num_left(const EpochPart& part) const {
  const auto& every_epochs = options_.every_epochs;
  const auto& every_steps = options_.every_steps;
  // The number of multiples of `every` after `begin`, up to `end`.
  const auto multiples = [](int64_t begin, int64_t end, int64_t every) { return end / every - begin / every; };
  const int64_t step = run_.progress.step;
  const int64_t last_step = step + steps_left(parts_.data.plan, part, step);
  int64_t count = 0;
  bool ends_with_one = false;
  if (every_epochs) {
    count += multiples(part.epoch, part.num_epochs, *every_epochs);
    ends_with_one = part.num_epochs % *every_epochs == 0;
  }
  if (every_steps) {
    count += multiples(step - 1, last_step, *every_steps);
    ends_with_one = ends_with_one || last_step % *every_steps == 0;
  }
  return ends_with_one ? count : count + 1;
}

double Validations::seconds_left(const EpochPart& part, double seconds_per_sample) const {
  if (options_.is_off()) return 0;
  const auto count = static_cast<double>(num_left(part));
  if (run_.last_validation) return count * run_.last_validation->seconds;
  const double num_passes = (parts_.ema ? 2 : 1) * (options_.tta == task::TestTimeAugmentation::kNone   ? 1
                                                    : options_.tta == task::TestTimeAugmentation::kFlip ? 2
                                                                                                        : 6);
  // The forward pass is about a third of a training step, or nearly all of it if the backward pass ends before the first layers.
  const double part_of_step = parts_.network.model->parameters().front().requires_grad() ? 1.0 / 3 : 1;
  return count * num_passes * part_of_step * seconds_per_sample * static_cast<double>(parts_.data.validation->samples.size());
}

bool Validations::validate(const EpochPart& part, bool is_within_epoch) {
  const auto start = std::chrono::steady_clock::now();
  const int64_t num_images = parts_.data.validation->samples.size() * (parts_.ema ? 2 : 1);
  const auto evaluation = evaluate(parts_, options_.tta, [&](int64_t num_done) {
    if (num_done > 0) reporter_.on_validation_step(num_done, num_images);
    return stop_agreed_();
  });
  if (!evaluation) return false;
  reporting::ValidationEvent event{.epoch = run_.progress.epoch,
                                   .num_epochs = part.num_epochs,
                                   .step = run_.progress.step,
                                   .metrics = evaluation->model.metrics,
                                   .num_samples = evaluation->model.num_samples,
                                   .classes = evaluation->model.classes,
                                   .labels = evaluation->model.labels,
                                   .numbers = evaluation->model.numbers,
                                   .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
                                   .is_within_epoch = is_within_epoch};
  if (evaluation->ema) {
    event.ema_metrics = evaluation->ema->metrics;
    event.ema_labels = evaluation->ema->labels;
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
      "validation/{} was not finite in any validation, so there is no best checkpoint; lower optimizer.lr, set training.max_grad_norm, or "
      "check the validation set",
      monitored_.name);
}

std::string Validations::reason_of_end() const {
  if (!end_training()) return "";
  const auto& [best, num_not_better] = run_.early_stopping;
  const auto than = best ? fmt::format("{:.6g}", *best) : "NaN";
  return fmt::format("validation/{} did not improve on {} in {} (training.early_stopping)", monitored_.name, than,
                     counted(num_not_better, "consecutive validation"));
}

reporting::MetricInfo monitored_metric(const MonitorOptions& options, const task::Task& task) {
  const auto name = options.metric == "auto" ? task.default_metric() : options.metric.substr(options.metric.find('/') + 1);
  const auto metrics = task.metrics().validation;
  const auto info = std::ranges::find(metrics, name, &reporting::MetricInfo::name);
  if (info == metrics.end())
    throw OptionError("monitor.metric", fmt::format("the task does not measure {}; choose one of its validation metrics, or auto", name));
  auto metric = *info;
  if (options.mode != MonitorMode::kAuto) metric.higher_is_better = options.mode == MonitorMode::kMax;
  return metric;
}

std::optional<task::Measurement> evaluate_model(Network& network, const Ranks& ranks, DataSource& source, task::TestTimeAugmentation tta,
                                                const StopEvaluation& should_stop, const ObserveBatch& observe) {
  const auto& placement = network.placement;
  const auto& world = *ranks.world;
  const int64_t num_samples = source.samples.size();
  const int64_t batch_size = source.batches->batch_size();
  const int64_t num_batches = (num_samples + batch_size - 1) / batch_size;
  const auto end_of = [&](int64_t number) { return std::min((number + 1) * batch_size, num_samples); };
  source.batches->start_epoch(0, [&](int rank) {
    RankShard shard;
    for (int64_t number = rank; number < num_batches; number += world.size()) {
      const int64_t first = number * batch_size;
      for (int64_t i = first; i < end_of(number); ++i) shard.samples.indices.push_back(i);
      shard.batch_sizes.push_back(end_of(number) - first);
    }
    return shard;
  });

  ranks.activity->enter(distributed::Phase::kValidation);
  const auto meter = network.task->make_validation_meter(placement.device, source.samples.info().num_outputs(), num_batches);
  const torch::InferenceMode inference;
  network.model->eval();
  bool stopped = should_stop(0);
  for (int64_t first = 0; !stopped && first < num_batches; first += world.size(), stopped = should_stop(end_of(first - 1))) {
    ranks.activity->enter(distributed::Phase::kValidation);
    const auto* batch = source.batches->next();
    if (batch == nullptr) continue;
    const auto [images, targets] = source.on_device.copy(*batch);
    const amp::AutocastGuard autocast(placement.device.type(), placement.autocast_dtype);
    const device::NoSearchForSmallBatch no_search(batch->size < batch_size);
    const auto pass = network.task->evaluate(*network.model, images, targets, tta);
    if (observe && pass.outputs.size(0) > 0) observe(pass.outputs, targets);
    task::EvaluatedBatch evaluated{.number = first + world.rank(), .size = batch->size, .weight = pass.weight};
    for (const auto position : batch->positions) evaluated.samples.push_back(evaluated.number * batch_size + position);
    meter->add(evaluated, pass.loss, pass.outputs, targets);
  }
  network.model->train();
  return stopped ? std::nullopt : std::optional(meter->read(world));
}

std::optional<Evaluation> evaluate(Parts& parts, task::TestTimeAugmentation tta, const StopEvaluation& should_stop) {
  const auto evaluate_parameters = [&](int64_t num_before) {
    parts.ranks.activity->enter(distributed::Phase::kValidation);
    parts.data_parallel->sync_buffers();
    return evaluate_model(parts.network, parts.ranks, *parts.data.validation, tta,
                          [&](int64_t num_done) { return should_stop(num_before + num_done); });
  };
  const auto model = evaluate_parameters(0);
  if (!model) return std::nullopt;
  if (!parts.ema) return Evaluation{.model = *model, .ema = {}};
  const optim::AveragedParameters averaged(*parts.ema);
  const auto ema = evaluate_parameters(parts.data.validation->samples.size());
  if (!ema) return std::nullopt;
  return Evaluation{.model = *model, .ema = ema};
}

}  // namespace trainer::engine
