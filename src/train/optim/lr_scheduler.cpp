#include "train/optim/lr_scheduler.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "base/metric_order.h"
#include "base/text.h"
#include "trainer/components.h"
#include "trainer/error.h"

namespace trainer::optim {

void StepOptions::describe(KeyTable& keys) {
  keys.add("step_epochs", step_epochs, {.min = 1, .unit = "epochs", .doc = "Epochs between two drops.", .required = true});
  keys.add("gamma", gamma, {.min = 0, .min_excluded = true, .doc = "Factor by which each drop multiplies the learning rate."});
}

void MultistepOptions::describe(KeyTable& keys) {
  keys.add("milestones", milestones,
           {.min = 0,
            .min_excluded = true,
            .unit = "epochs",
            .doc = "The epochs of the drops, in increasing order; fractions are allowed.",
            .required = true});
  keys.add("gamma", gamma, {.min = 0, .min_excluded = true, .doc = "Factor by which each drop multiplies the learning rate."});
  keys.refuse("milestones", [this]() -> std::string {
    const bool increases = std::ranges::adjacent_find(milestones, std::ranges::greater_equal()) == milestones.end();
    return increases ? "" : fmt::format("[{}] is not strictly increasing; sort it and give each epoch once", fmt::join(milestones, ", "));
  });
}

void CosineOptions::describe(KeyTable& keys) {
  keys.add("final_factor", final_factor, {.min = 0, .max = 1, .doc = "Factor by which the learning rate is multiplied at the end."});
}

void OneCycleOptions::describe(KeyTable& keys) {
  keys.add(
      "pct_start", pct_start,
      {.min = 0, .max = 1, .max_excluded = true, .doc = "Fraction of the steps in which the learning rate rises to the optimizer's lr."});
  keys.add("div_factor", div_factor,
           {.min = 0, .min_excluded = true, .doc = "The learning rate starts at the optimizer's lr divided by this."});
  keys.add("final_div_factor", final_div_factor,
           {.min = 0, .min_excluded = true, .doc = "The learning rate ends at its starting value divided by this."});
}

namespace {

// A training step after the warm-up.
struct SchedulePoint {
  int64_t step;       // since the end of the warm-up, from 0
  int64_t num_steps;  // from the end of the warm-up to the end of training, at least 1
  double epoch;       // since the start of training

  double progress() const { return static_cast<double>(step) / static_cast<double>(num_steps); }
};

struct Schedule {
  std::function<double(const SchedulePoint& point)> factor;
  LrScheduleTraits traits = {};
  std::optional<Plateau> plateau = {};
  std::vector<std::pair<std::string, double>> group_factors = {{"initial_lr", 1}};
};

double interpolate(double start, double end, double progress) { return start + (end - start) * progress; }

double cosine_anneal(double start, double end, double progress) {
  return end + (start - end) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

struct ConstantOptions {
  void describe(KeyTable& /*keys*/) {}
};

struct LinearOptions {
  double start_factor = 1;
  double end_factor = 0;

  void describe(KeyTable& keys) {
    keys.add("start_factor", start_factor, {.min = 0, .max = 1, .doc = "Factor by which the learning rate is multiplied at the start."});
    keys.add("end_factor", end_factor, {.min = 0, .max = 1, .doc = "Factor by which the learning rate is multiplied at the end."});
  }
};

struct PolynomialOptions {
  double power = 1;
  double final_factor = 0;

  void describe(KeyTable& keys) {
    keys.add("power", power, {.min = 0, .min_excluded = true, .doc = "Exponent of the fraction of steps left; 1: a straight line."});
    keys.add("final_factor", final_factor, {.min = 0, .max = 1, .doc = "Factor by which the learning rate is multiplied at the end."});
  }
};

double constant(const SchedulePoint& /*point*/) { return 1; }

double one_cycle(const OneCycleOptions& options, const SchedulePoint& point) {
  const double first = 1 / options.div_factor;
  const double last = static_cast<double>(point.num_steps - 1);
  const double step = std::min(static_cast<double>(point.step), last);
  const double peak = options.pct_start * static_cast<double>(point.num_steps) - 1;
  // With the peak at step 0 or before it there is no rise; at step 0, PyTorch would divide by zero.
  if (peak > 0 && step <= peak) return cosine_anneal(first, 1, step / peak);
  return cosine_anneal(1, 1 / (options.div_factor * options.final_div_factor), (step - peak) / (last - peak));
}

using LrSchedulerRegistry = Registry<Schedule>;

const LrSchedulerRegistry& schedules() {
  static const LrSchedulerRegistry all = [] {
    using Point = SchedulePoint;
    LrSchedulerRegistry registry("lr_scheduler");
    registry.add<ConstantOptions>("constant", "The learning rate stays constant.",
                                  [](const ConstantOptions& /*options*/) { return Schedule{constant}; });
    registry.add<StepOptions>("step", "The learning rate is multiplied by gamma every step_epochs epochs.", [](const StepOptions& options) {
      return Schedule{
          [=](const Point& point) { return std::pow(options.gamma, std::floor(point.epoch / static_cast<double>(options.step_epochs))); }};
    });
    registry.add<MultistepOptions>(
        "multistep", "The learning rate is multiplied by gamma at each milestone.", [](const MultistepOptions& options) {
          const auto factor = [=](const Point& point) {
            const auto& milestones = options.milestones;
            const auto drops = std::upper_bound(milestones.begin(), milestones.end(), point.epoch) - milestones.begin();
            return std::pow(options.gamma, static_cast<double>(drops));
          };
          return Schedule{factor, {.last_drop = options.milestones.empty() ? 0 : options.milestones.back()}};
        });
    registry.add<CosineOptions>("cosine", "Falls along half a cosine to final_factor.", [](const CosineOptions& options) {
      return Schedule{[=](const Point& point) { return cosine_anneal(1, options.final_factor, point.progress()); }};
    });
    registry.add<LinearOptions>("linear", "A straight line from start_factor to end_factor.", [](const LinearOptions& options) {
      return Schedule{[=](const Point& point) { return interpolate(options.start_factor, options.end_factor, point.progress()); }};
    });
    registry.add<PolynomialOptions>(
        "polynomial", "Falls with a power of the fraction of steps left, to final_factor.", [](const PolynomialOptions& options) {
          return Schedule{
              [=](const Point& point) { return interpolate(options.final_factor, 1, std::pow(1 - point.progress(), options.power)); }};
        });
    registry.add<PlateauOptions>("reduce_on_plateau", "The learning rate is multiplied by factor when checkpoint.monitor stops improving.",
                                 [](const PlateauOptions& options) {
                                   return Schedule{constant, {.needs_validations = true}, Plateau(options)};
                                 });
    registry.add<OneCycleOptions>("onecycle", "Rises and then falls, each time along half a cosine (Smith and Topin 2017).",
                                  [](const OneCycleOptions& options) {
                                    const double first = 1 / options.div_factor;
                                    const double last = 1 / (options.div_factor * options.final_div_factor);
                                    return Schedule{[=](const Point& point) { return one_cycle(options, point); },
                                                    {.has_own_warmup = true},
                                                    {},
                                                    {{"initial_lr", first}, {"max_lr", 1}, {"min_lr", last}}};
                                  });
    return registry;
  }();
  return all;
}

}  // namespace

void PlateauOptions::describe(KeyTable& keys) {
  keys.add("factor", factor,
           {.min = 0, .max = 1, .max_excluded = true, .doc = "Factor by which each reduction multiplies the learning rate."});
  keys.add(
      "patience", patience,
      {.min = 0,
       .unit = "validations",
       .doc = "Consecutive validations without improvement of checkpoint.monitor that are tolerated; one more reduces the learning rate."});
  keys.add("threshold", threshold, {.min = 0, .doc = "An improvement over the best validation counts only if it is larger than this."});
  keys.add_choice("threshold_mode", is_relative, {{"rel", true}, {"abs", false}},
                  {.doc = "rel: threshold is a fraction of the best value; abs: it is in the metric's own unit."});
  keys.add("cooldown", cooldown,
           {.min = 0, .unit = "validations", .doc = "Number of validations after a reduction that do not count towards patience."});
  keys.add("min_factor", min_factor, {.min = 0, .max = 1, .doc = "Lower limit of the learning rate, as a fraction of the optimizer's lr."});
}

const RegistryBase& lr_scheduler_registry() { return schedules(); }

LrScheduleTraits traits_of(const ComponentConfig& component) { return schedules().make(component).traits; }

LrSchedule make_lr_schedule(const ComponentConfig& component, const WarmupOptions& options, int64_t total_steps, int64_t steps_per_epoch) {
  const auto schedule = schedules().make(component);
  const int64_t warmup = options.length(steps_per_epoch);
  if (warmup >= total_steps) {
    throw OptionError("warmup",
                      fmt::format("the warm-up of {} must be shorter than the training run of {}; shorten the warm-up or train longer",
                                  counted(warmup, "step"), counted(total_steps, "step")));
  }
  const auto factor = [of_point = schedule.factor, warmup, start = options.start_factor, total_steps, steps_per_epoch](int64_t step) {
    if (step < warmup) return interpolate(start, 1, static_cast<double>(step) / static_cast<double>(warmup));
    const int64_t bounded = std::min(step, total_steps);
    return of_point({.step = bounded - warmup,
                     .num_steps = total_steps - warmup,
                     .epoch = static_cast<double>(bounded) / static_cast<double>(steps_per_epoch)});
  };
  return {factor, schedule.group_factors, schedule.plateau};
}

std::function<double(int64_t step)> make_lr_factor(const ComponentConfig& schedule, int64_t total_steps, int64_t steps_per_epoch,
                                                   const WarmupOptions& warmup) {
  TORCH_CHECK(total_steps >= 1 && steps_per_epoch >= 1, "total_steps and steps_per_epoch must be at least 1, but are ", total_steps,
              " and ", steps_per_epoch);
  const auto traits = traits_of(schedule);
  if (traits.needs_validations) {
    throw UsageError(
        fmt::format("the schedule {} depends on validations, which an own loop does not report; choose another one", schedule.name));
  }
  if (traits.has_own_warmup && (warmup.steps > 0 || warmup.epochs > 0)) {
    throw OptionError("warmup", schedule.name + " has its own warm-up; remove this one");
  }
  return make_lr_schedule(schedule, warmup, total_steps, steps_per_epoch).factor;
}

void Plateau::observe(double value, bool higher_is_better) {
  ++num_observed_;
  const double margin = options_.is_relative ? best_.value_or(0) * options_.threshold : options_.threshold;
  if (is_better(value, best_, higher_is_better, margin)) {
    best_ = value;
    num_bad_ = 0;
  } else {
    ++num_bad_;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    num_bad_ = 0;
  }
  if (num_bad_ <= options_.patience) return;
  lr_factor_ = std::min(lr_factor_, std::max(lr_factor_ * options_.factor, options_.min_factor));
  cooldown_left_ = options_.cooldown;
  num_bad_ = 0;
}

void Plateau::add_state(state::Dict& state) const {
  // If "best" is missing, Python's scheduler keeps its initial value, an infinity that is worse than any number.
  if (best_) state.add("best", *best_);
  state.add("num_bad_epochs", num_bad_);
  state.add("cooldown_counter", cooldown_left_);
  state.add("lr_factor", lr_factor_);
}

void Plateau::load_state(const state::View& state) {
  if (!state.find("lr_factor")) return;
  const auto best = state.find("best");
  best_ = best ? std::optional(best->number()) : std::nullopt;
  num_bad_ = state.at("num_bad_epochs").integer();
  cooldown_left_ = state.at("cooldown_counter").integer();
  lr_factor_ = state.at("lr_factor").number();
  num_observed_ = state.at("last_epoch").integer();
}

}  // namespace trainer::optim
