#include "engine/trainer.h"

#include <fmt/format.h>

#include "base/error.h"
#include "engine/evaluator.h"
#include "engine/out_of_memory.h"

namespace trainer::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool is_better(const reporting::ValidationEvent& candidate, const reporting::ValidationEvent& best) {
  return candidate.top1 ? *candidate.top1 > *best.top1 : candidate.loss < best.loss;
}

}  // namespace

Trainer::Trainer(const config::Experiment& experiment, Parts& parts, reporting::Sink& reporter, std::function<bool()> should_stop,
                 NonFiniteSteps::Keep keep)
    : experiment_(experiment),
      parts_(parts),
      reporter_(reporter),
      should_stop_(std::move(should_stop)),
      agreement_(parts.ranks.control),
      meter_(parts.placement.device, parts.loss->has_classes()),
      train_step_(parts, static_cast<uint64_t>(experiment.seed), experiment.training.max_grad_norm, meter_),
      non_finite_steps_(experiment.training.on_non_finite, parts, train_step_, std::move(keep)) {}

bool Trainer::run() {
  std::string message;
  try {
    const bool done = run_epochs();
    parts_.ranks.activity->enter(distributed::Phase::kEnd);
    agreement_.finish();
    finish(done ? "done" : "stopped", "");
    return done;
  } catch (const Error& error) {
    finish("failed", error.what());
    throw;
  } catch (const std::exception& error) {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    const auto activity = parts_.ranks.activity->read();
    const auto where = describe(activity);
    if (!is_out_of_memory(error)) {
      message = fmt::format("{}: {}", where, torch_error != nullptr ? torch_error->what_without_backtrace() : error.what());
    } else if (activity.phase == distributed::Phase::kValidation) {
      message =
          fmt::format("out of memory in validation at batch_size {}; lower validation.batch_size", parts_.validation.loader->batch_size());
    } else {
      message = fmt::format("out of memory in {} at batch_size {}; lower dataloader.batch_size and raise training.accumulation_steps alike",
                            where, parts_.plan.batch_size);
    }
  }
  finish("failed", message);
  throw Error(message);
}

bool Trainer::run_epochs() {
  int64_t num_parameters = 0;
  for (const auto& parameter : parts_.model->parameters()) num_parameters += parameter.numel();
  reporter_.on_start({.num_epochs = parts_.plan.num_epochs,
                      .steps_per_epoch = parts_.plan.steps_per_epoch,
                      .world_size = parts_.plan.world_size,
                      .global_batch_size = parts_.plan.global_batch_size,
                      .num_parameters = num_parameters});
  if (parts_.ranks.world->size() > 1) {
    straggler_watch_.emplace(parts_.ranks, parts_.placement.device, experiment_.distributed.straggler_ratio);
  }
  parts_.model->train();
  for (int64_t epoch = 0; epoch < parts_.plan.num_epochs; ++epoch) {
    if (!train_epoch(epoch)) return false;
    const bool is_last = epoch + 1 == parts_.plan.num_epochs;
    const bool validates = is_last || (epoch + 1) % experiment_.validation.every_epochs == 0;
    if (validates && !validate(epoch)) return false;
    report_epoch(epoch, validates);
    if (stop_agreed() && !is_last) return false;
  }
  return true;
}

bool Trainer::stop_agreed() { return agreement_.ask(should_stop_()); }

bool Trainer::train_epoch(int64_t epoch) {
  const auto& plan = parts_.plan;
  epoch_ = {};
  interval_start_ = Clock::now();
  start_loading(parts_, steps_done_);
  for (int64_t step_in_epoch = 0; step_in_epoch < plan.steps_per_epoch; ++step_in_epoch) {
    if (stop_agreed()) return false;
    take_step(steps_done_);
    ++steps_done_;
    const bool logs = (step_in_epoch + 1) % experiment_.logging.every_steps == 0 || step_in_epoch + 1 == plan.steps_per_epoch;
    if (logs || non_finite_steps_.looks_at_each_step()) check_finite(epoch);
    if (logs) log_interval(epoch, step_in_epoch + 1);
    reporter_.on_step(step_in_epoch + 1, plan.steps_per_epoch);
  }
  return true;
}

void Trainer::take_step(int64_t step) {
  for (const auto& micro_step : micro_steps_of(parts_.plan, parts_.ranks.world->rank(), step)) {
    parts_.ranks.activity->enter(distributed::Phase::kLoading, step);
    const auto& batch = *parts_.train.loader->next();
    parts_.ranks.activity->enter(distributed::Phase::kStep, step);
    train_step_.micro_step(batch, micro_step);
  }
  train_step_.update(lr_at(step));
}

void Trainer::check_finite(int64_t epoch) {
  // On a GPU this waits for the device, and for other ranks where it comes after their sums.
  const distributed::Activity::Wait wait(parts_.placement.device.is_cpu() ? nullptr : parts_.ranks.activity.get());
  const auto skipped = non_finite_steps_.check(steps_done_ - 1, [this](int64_t step) { return lr_at(step); });
  if (!skipped.empty()) reporter_.on_warning({.epoch = epoch, .step = steps_done_, .message = skipped});
}

void Trainer::log_interval(int64_t epoch, int64_t step_in_epoch) {
  const auto& plan = parts_.plan;
  Interval interval;
  interval.scores = meter_.read(*parts_.ranks.world);
  // All its steps were left out: the next interval has its time.
  if (interval.scores.num_samples == 0) return;
  meter_.reset();
  interval.seconds = seconds_since(interval_start_);
  const double waited = parts_.train.loader->waited().count();
  interval.waited_seconds = waited - waited_before_;
  waited_before_ = waited;
  interval_start_ = Clock::now();
  epoch_.add(interval);
  whole_.add(interval);
  reporter_.on_train(
      {.epoch = epoch,
       .num_epochs = plan.num_epochs,
       .step = steps_done_,
       .step_in_epoch = step_in_epoch,
       .steps_per_epoch = plan.steps_per_epoch,
       .loss = interval.scores.loss,
       .top1 = interval.scores.top1,
       .lr = lr_at(steps_done_ - 1),
       .images_per_second = static_cast<double>(interval.scores.num_samples) / interval.seconds,
       .data_wait = interval.waited_seconds / interval.seconds,
       .memory_bytes = device::memory_in_use(parts_.placement),
       .grad_scale = parts_.grad_scaler ? std::optional(parts_.grad_scaler->current_scale().item<double>()) : std::nullopt,
       .skipped_steps = parts_.grad_scaler ? std::optional(parts_.grad_scaler->num_skipped()) : std::nullopt,
       .eta_seconds = whole_.seconds / static_cast<double>(steps_done_) * static_cast<double>(plan.total_steps - steps_done_)});
  if (!straggler_watch_) return;
  const auto warning = straggler_watch_->end_interval(steps_done_, interval.seconds);
  if (warning) reporter_.on_warning({.epoch = epoch, .step = steps_done_, .message = *warning});
}

void Trainer::report_epoch(int64_t epoch, bool validated) {
  reporter_.on_epoch({.epoch = epoch,
                      .step = steps_done_,
                      .lr = lr_at(steps_done_ - 1),
                      .train_loss = epoch_.scores.loss,
                      .train_top1 = epoch_.scores.top1,
                      .seconds = epoch_.seconds,
                      .images_per_second = static_cast<double>(epoch_.scores.num_samples) / epoch_.seconds,
                      .validation = validated ? last_validation_ : std::nullopt});
}

bool Trainer::validate(int64_t epoch) {
  const auto start = Clock::now();
  const auto scores = evaluate(parts_, [this] { return stop_agreed(); });
  if (!scores) return false;
  reporting::ValidationEvent event{.epoch = epoch,
                                   .num_epochs = parts_.plan.num_epochs,
                                   .step = steps_done_,
                                   .loss = scores->loss,
                                   .top1 = scores->top1,
                                   .top5 = scores->top5,
                                   .num_samples = scores->num_samples,
                                   .macro_f1 = scores->macro_f1,
                                   .confusion = scores->confusion,
                                   .seconds = seconds_since(start)};
  reporter_.on_validation(event);
  last_validation_ = event;
  if (!best_validation_ || is_better(event, *best_validation_)) best_validation_ = event;
  return true;
}

double Trainer::lr_at(int64_t step) const { return parts_.optimizer->base_lr() * parts_.lr_factor(step); }

void Trainer::finish(const std::string& reason, const std::string& message) {
  reporter_.on_end({.reason = reason,
                    .message = message,
                    .epoch = steps_done_ / parts_.plan.steps_per_epoch,
                    .step = steps_done_,
                    .seconds = whole_.seconds,
                    .images_per_second = whole_.seconds > 0 ? static_cast<double>(whole_.scores.num_samples) / whole_.seconds : 0,
                    .monitor = parts_.loss->has_classes() ? "validation/top1" : "validation/loss",
                    .final_validation = last_validation_,
                    .best_validation = best_validation_});
}

void Trainer::Interval::add(const Interval& other) {
  const auto count = static_cast<double>(scores.num_samples);
  const auto other_count = static_cast<double>(other.scores.num_samples);
  const auto mean = [&](double mine, double theirs) { return (mine * count + theirs * other_count) / (count + other_count); };
  scores.loss = mean(scores.loss, other.scores.loss);
  if (other.scores.top1) scores.top1 = mean(scores.top1.value_or(0), *other.scores.top1);
  scores.num_samples += other.scores.num_samples;
  seconds += other.seconds;
  waited_seconds += other.waited_seconds;
}

}  // namespace trainer::engine
