#include "train/engine/training_loop.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/crash.h"
#include "train/engine/failure_message.h"
#include "trainer/error.h"

namespace trainer::engine {

TrainingLoop::TrainingLoop(LoopOptions options, Parts& parts, reporting::Sink& reporter, std::function<bool()> should_stop,
                           RunCallbacks callbacks)
    : options_(std::move(options)),
      parts_(parts),
      reporter_(reporter),
      should_stop_(std::move(should_stop)),
      stop_consensus_(parts.ranks.control),
      meter_(parts.network.task->make_train_meter(parts.network.placement.device)),
      train_step_(parts, options_.seed, options_.max_grad_norm, meter_,
                  [this](const std::string& message) {
                    reporter_.on_warning({.epoch = run_.progress.epoch_of_step(), .step = run_.progress.step, .message = message});
                  }),
      non_finite_steps_(options_.on_non_finite, parts, train_step_, std::move(callbacks.non_finite_step)),
      validations_(options_, parts, run_, reporter, [this] { return stop_agreed(); }),
      checkpoints_(parts, run_, meter_, reporter, std::move(callbacks.checkpoints)),
      clock_(*parts.data.train.batches),
      advise_on_data_(std::move(callbacks.advise_on_data)) {}

void TrainingLoop::resume(const state::Tree& checkpoint, const std::string& file) {
  checkpoints_.load(state::View(checkpoint, file));
  resume_ = {.checkpoint = file, .epoch = run_.progress.epoch, .step = run_.progress.step};
  resume_->own_checkpoint = checkpoints_.adopt(file);
}

bool TrainingLoop::run() {
  std::string message;
  bool has_ended = false;
  try {
    const bool done = run_epochs();
    parts_.ranks.activity->enter(distributed::Phase::kEnd);
    stop_consensus_.finish();
    if (done) message = validations_.reason_of_failure();
    if (!message.empty()) {
      end_together("failed", message);
    } else if (!done) {
      end_together("stopped", "");
    } else if (validations_.end_training()) {
      // Reported also if early stopping applied only at the last planned step, because a run with more steps would have stopped here too.
      end_together("early", validations_.reason_of_end());
    } else {
      end_together("done", "");
    }
    if (message.empty()) return done;
    has_ended = true;
  } catch (const Error& error) {
    report_failure(error.what());
    throw;
  } catch (const std::exception& error) {
    message = describe_failure(error, parts_);
  }
  if (has_ended) throw AgreedError(parts_.ranks.world->rank() == 0 ? message : "");
  report_failure(message);
  throw Error(message);
}

void TrainingLoop::end_together(const std::string& reason, const std::string& message) {
  const auto& ranks = parts_.ranks;
  const bool is_first = ranks.world->rank() == 0;
  std::string problem;
  auto exit_code = ExitCode::kPeer;
  try {
    checkpoints_.finish();
    if (is_first) finish(reason, message);
  } catch (const std::exception& error) {
    if (!is_first || ranks.world->size() == 1) throw;
    problem = error.what();
    exit_code = exit_code_of(error);
  }
  problem = ranks.world->broadcast_bytes(problem);
  if (is_first && !problem.empty()) throw AgreedError(problem, exit_code);
  if (!problem.empty()) {
    throw AgreedError(fmt::format("rank 0 ({}) failed at the end of the run: {}; this rank exits", to_string(ranks.infos.front()), problem),
                      exit_code);
  }
  if (!is_first) finish(reason, message);
}

void TrainingLoop::report_failure(const std::string& message) {
  try {
    finish("failed", message);
  } catch (const std::exception&) {
    // The cause of the first error, such as a full disk, may also prevent this report. The caller throws the first error.
  }
}

void TrainingLoop::start() {
  int64_t num_parameters = 0;
  for (const auto& parameter : parts_.network.model->parameters()) num_parameters += parameter.numel();
  const auto& plan = parts_.data.plan;
  const auto& progress = run_.progress;
  reporter_.on_start({.resume = resume_,
                      .num_epochs = rest_of_epoch(plan, progress.epoch, progress.step, progress.samples_in_epoch).num_epochs,
                      .num_steps = plan.num_epochs ? std::nullopt : std::optional(plan.total_steps),
                      .steps_per_epoch = plan.steps_per_epoch,
                      .world_size = plan.world_size,
                      .global_batch_size = plan.global_batch_size,
                      .num_parameters = num_parameters,
                      .metrics = parts_.network.task->metrics(),
                      .monitor = "validation/" + validations_.monitored().name,
                      .higher_is_better = validations_.monitored().higher_is_better});
  if (parts_.ranks.world->size() > 1) {
    const auto& ranks = parts_.ranks;
    straggler_detector_.emplace(ranks.world, ranks.activity, ranks.infos, parts_.network.placement.device, options_.straggler_ratio);
  }
  parts_.network.model->train();
}

bool TrainingLoop::run_epochs() {
  start();
  while (!has_trained_all() && !validations_.end_training()) {
    if (run_epoch()) continue;
    if (run_.progress.step > 0 && !checkpoints_.is_saved()) save();
    return false;
  }
  return true;
}

bool TrainingLoop::has_trained_all() const {
  const auto& plan = parts_.data.plan;
  const auto& progress = run_.progress;
  if (plan.num_epochs) return progress.epoch >= *plan.num_epochs;
  return progress.step > plan.total_steps || (progress.step == plan.total_steps && !validations_.is_missing_at_end());
}

bool TrainingLoop::run_epoch() {
  auto& progress = run_.progress;
  part_ = rest_of_epoch(parts_.data.plan, progress.epoch, progress.step, progress.samples_in_epoch);
  if (parts_.network.frozen_at_first.end_in(progress.epoch)) {
    parts_.make_data_parallel();
    train_step_.restart();
  } else if (progress.epoch > 0 && parts_.data.plan.image_size_in(progress.epoch) != parts_.data.plan.image_size_in(progress.epoch - 1)) {
    // A CUDA graph is recorded for one shape of images.
    train_step_.restart();
  }
  const int64_t number = progress.epoch + 1;
  if (!train()) return false;
  const bool is_at_end = progress.step == part_.first_step + part_.num_steps;
  const bool validates = is_at_end && validations_.is_due_after(part_);
  if (validates && !validations_.validate(part_, /*is_within_epoch=*/false)) return false;
  report_epoch();
  advise_on_data();
  const bool is_last = part_.is_last() || validations_.end_training();
  const bool is_best = validates && run_.last_validation->is_best;
  // A run that ends within an epoch keeps its position in the epoch, so that it can be resumed with more steps.
  if (part_.ends_epoch && is_at_end) {
    progress.epoch = number;
    progress.samples_in_epoch = 0;
    run_.epoch = {};
  }
  const auto& every_epochs = options_.checkpoint_every_epochs;
  if (is_last || is_best || (every_epochs && number % *every_epochs == 0)) save(is_best);
  return is_last || !stop_agreed();
}

bool TrainingLoop::stop_agreed() { return stop_consensus_.any_requested(should_stop_()); }

bool TrainingLoop::train() {
  auto& progress = run_.progress;
  const int64_t end_step = part_.first_step + part_.num_steps;
  const int64_t steps_per_epoch = part_.first_step_in_epoch + part_.num_steps;
  const auto& every_steps = options_.checkpoint_every_steps;
  lr_ = lr_at(parts_, part_, std::max<int64_t>(progress.step - 1, 0));
  parts_.data.begin(part_, progress.step);
  clock_.begin(progress.step, run_.open);
  // A resumed run may have to validate first, if a stop request arrived between a step and its validation.
  if (!validate_within_epoch()) return false;
  while (progress.step < end_step && !validations_.end_training()) {
    if (stop_agreed()) return false;
    for (auto* hook : hooks_) hook->before_step(progress.step);
    take_step(progress.step);
    progress.samples_in_epoch = end_sample_of(parts_.data.plan, part_, progress.step);
    progress.samples_seen += samples_in_step(parts_.data.plan, part_, progress.step);
    ++progress.step;
    const bool is_last = progress.step == end_step;
    const bool logs = step_in_epoch() % options_.log_every_steps == 0 || is_last;
    if (logs || non_finite_steps_.checks_each_step()) check_finite();
    if (logs) {
      log_interval();
    } else {
      report_progress();
    }
    reporter_.on_step(step_in_epoch(), steps_per_epoch);
    for (auto* hook : hooks_) hook->after_step(progress.step - 1);
    checkpoints_.after_step();
    if (!validate_within_epoch()) return false;
    if (every_steps && progress.step % *every_steps == 0 && !is_last && !checkpoints_.is_saved()) save();
  }
  // Without this, the last steps of training that ends early would not be reported.
  if (progress.step < end_step) log_interval();
  run_.open = {};
  return true;
}

bool TrainingLoop::validate_within_epoch() {
  if (!validations_.is_due_within(part_)) return true;
  close_interval();
  if (!validations_.validate(part_, /*is_within_epoch=*/true)) return false;
  clock_.begin(run_.progress.step, run_.open);
  if (run_.last_validation->is_best) save(/*is_best=*/true);
  return true;
}

void TrainingLoop::take_step(int64_t step) {
  lr_ = lr_at(parts_, part_, step);
  const auto next_batch = [&]() -> const data::Batch& {
    parts_.ranks.activity->enter(distributed::Phase::kLoading, step);
    const auto& batch = parts_.data.next();
    parts_.ranks.activity->enter(distributed::Phase::kStep, step);
    return batch;
  };
  train_step_.run(micro_steps_of(parts_.data.plan, part_, parts_.ranks.world->rank(), step), next_batch, lr_, hooks_);
}

void TrainingLoop::check_finite() {
  // On a GPU this waits for the device, which may be waiting for the gradients of other ranks.
  const distributed::Activity::Wait wait(parts_.network.placement.device.is_cpu() ? nullptr : parts_.ranks.activity.get());
  const auto skipped = non_finite_steps_.check(part_, run_.progress.step - 1);
  if (!skipped.empty()) reporter_.on_warning({.epoch = part_.epoch, .step = run_.progress.step, .message = skipped});
}

void TrainingLoop::close_interval() {
  if (!clock_.has_steps(run_.progress.step)) return;
  if (!non_finite_steps_.checks_each_step()) check_finite();
  clock_.read(run_.open);
}

void TrainingLoop::save(bool is_best) {
  close_interval();
  checkpoints_.save(is_best);
}

void TrainingLoop::log_interval() {
  const int64_t step = run_.progress.step;
  Interval interval{.measured = meter_.read(*parts_.ranks.world)};
  // All steps were skipped; their time counts for the next interval.
  if (interval.measured.num_samples == 0) return;
  meter_.reset();
  clock_.read(interval);
  run_.epoch.add(interval);
  run_.whole.add(interval);
  const auto event = describe(interval, run_.whole.seconds);
  run_.open = {};
  clock_.begin(step);
  reporter_.on_train(event);
  reported_at_ = std::chrono::steady_clock::now();
  if (!straggler_detector_) return;
  const auto warning = straggler_detector_->end_interval(step, interval.seconds);
  if (warning) reporter_.on_warning({.epoch = part_.epoch, .step = step, .message = *warning});
}

void TrainingLoop::report_progress() {
  constexpr std::chrono::seconds kLongest(5);
  const auto now = std::chrono::steady_clock::now();
  const auto& world = *parts_.ranks.world;
  if (world.rank() != 0 || (reported_at_ && now - *reported_at_ < kLongest)) return;
  reported_at_ = now;
  // The other ranks need not take part, because only this rank's images are measured.
  const distributed::Activity::Wait wait(parts_.network.placement.device.is_cpu() ? nullptr : parts_.ranks.activity.get());
  Interval interval{.measured = meter_.read(distributed::ProcessGroup())};
  if (interval.measured.num_samples == 0) return;
  clock_.read(interval);
  auto event = describe(interval, run_.whole.seconds + interval.seconds);
  event.images_per_second *= world.size();
  reporter_.on_progress(event);
}

reporting::TrainEvent TrainingLoop::describe(const Interval& interval, double seconds) const {
  const int64_t step = run_.progress.step;
  const double left = seconds / static_cast<double>(step) * static_cast<double>(steps_left(parts_.data.plan, part_, step)) +
                      validations_.seconds_left(part_, seconds / static_cast<double>(run_.progress.samples_seen));
  return {
      .epoch = part_.epoch,
      .num_epochs = part_.num_epochs,
      .step = step,
      .step_in_epoch = step_in_epoch(),
      .steps_per_epoch = part_.first_step_in_epoch + part_.num_steps,
      .metrics = interval.measured.metrics,
      .lr = lr_,
      .images_per_second = static_cast<double>(interval.measured.num_samples) / interval.seconds,
      .data_wait = interval.waited_seconds / interval.seconds,
      .queue_depth = clock_.queue_depth(),
      .memory_bytes = device::memory_in_use(parts_.network.placement),
      .grad_scale = parts_.network.grad_scaler ? std::optional(parts_.network.grad_scaler->current_scale().item<double>()) : std::nullopt,
      .skipped_steps = parts_.network.grad_scaler ? std::optional(parts_.network.grad_scaler->num_skipped()) : std::nullopt,
      .eta_seconds = left};
}

void TrainingLoop::report_epoch() {
  const auto& epoch = run_.epoch;
  reporter_.on_epoch({.epoch = part_.epoch,
                      .num_epochs = part_.num_epochs,
                      .step = run_.progress.step,
                      .lr = lr_,
                      .train_metrics = epoch.measured.metrics,
                      .seconds = epoch.seconds,
                      .images_per_second = static_cast<double>(epoch.measured.num_samples) / epoch.seconds,
                      .validation = validations_.is_current() ? run_.last_validation : std::nullopt});
}

// Advises only once, because later epochs will be similar.
void TrainingLoop::advise_on_data() {
  if (has_advised_ || parts_.ranks.world->rank() != 0 || !advise_on_data_) return;
  const auto advice = advise_on_data_(run_.epoch, part_.epoch);
  has_advised_ = !advice.empty();
  if (has_advised_) reporter_.on_warning({.epoch = part_.epoch, .step = run_.progress.step, .message = advice});
}

void TrainingLoop::finish(const std::string& reason, const std::string& message) {
  const auto& whole = run_.whole;
  const auto& final_validation = run_.last_validation;
  reporter_.on_end({.reason = reason,
                    .message = message,
                    .epoch = run_.progress.epoch_of_step(),
                    .step = run_.progress.step,
                    .seconds = run_.clock.seconds(),
                    .images_per_second = whole.seconds > 0 ? static_cast<double>(whole.measured.num_samples) / whole.seconds : 0,
                    .monitor = "validation/" + validations_.monitored().name,
                    .higher_is_better = validations_.monitored().higher_is_better,
                    .final_validation = final_validation,
                    .best_validation = run_.best_validation});
}

}  // namespace trainer::engine
