#include "engine/run_state.h"

namespace trainer::engine {
namespace {

state::Tree tree_of(const std::optional<double>& value) { return value ? state::Tree(*value) : state::Tree(); }

std::optional<double> number_at(const state::View& view, const char* key) {
  const auto value = view.at(key);
  return value.is_none() ? std::nullopt : std::optional(value.number());
}

state::Dict tree_of(const Interval& interval) {
  state::Dict dict;
  dict.add("num_samples", interval.scores.num_samples);
  dict.add("loss", interval.scores.loss);
  dict.add("top1", tree_of(interval.scores.top1));
  dict.add("seconds", interval.seconds);
  dict.add("waited_seconds", interval.waited_seconds);
  return dict;
}

Interval read_interval(const state::View& view) {
  Interval interval{.seconds = view.at("seconds").number(), .waited_seconds = view.at("waited_seconds").number()};
  interval.scores.num_samples = view.at("num_samples").integer();
  interval.scores.loss = view.at("loss").number();
  interval.scores.top1 = number_at(view, "top1");
  return interval;
}

state::Tree tree_of(const std::optional<reporting::ValidationEvent>& event) {
  if (!event) return {};
  state::Dict dict;
  dict.add("epoch", event->epoch);
  dict.add("step", event->step);
  dict.add("loss", event->loss);
  dict.add("top1", tree_of(event->top1));
  dict.add("top5", tree_of(event->top5));
  dict.add("macro_f1", tree_of(event->macro_f1));
  dict.add("num_samples", event->num_samples);
  dict.add("confusion", torch::tensor(event->confusion, torch::kInt64));
  dict.add("ema_loss", tree_of(event->ema_loss));
  dict.add("ema_top1", tree_of(event->ema_top1));
  dict.add("ema_top5", tree_of(event->ema_top5));
  dict.add("seconds", event->seconds);
  return dict;
}

std::optional<reporting::ValidationEvent> read_validation(const state::View& view) {
  if (view.is_none()) return std::nullopt;
  const auto confusion = view.at("confusion").tensor().to(torch::kInt64).contiguous();
  const auto* cells = confusion.const_data_ptr<int64_t>();
  return reporting::ValidationEvent{.epoch = view.at("epoch").integer(),
                                    .step = view.at("step").integer(),
                                    .loss = view.at("loss").number(),
                                    .top1 = number_at(view, "top1"),
                                    .top5 = number_at(view, "top5"),
                                    .num_samples = view.at("num_samples").integer(),
                                    .macro_f1 = number_at(view, "macro_f1"),
                                    .confusion = {cells, cells + confusion.numel()},
                                    .ema_loss = number_at(view, "ema_loss"),
                                    .ema_top1 = number_at(view, "ema_top1"),
                                    .ema_top5 = number_at(view, "ema_top5"),
                                    .seconds = view.at("seconds").number()};
}

}  // namespace

void Interval::add(const Interval& other) {
  const auto count = static_cast<double>(scores.num_samples);
  const auto other_count = static_cast<double>(other.scores.num_samples);
  const auto mean = [&](double mine, double theirs) { return (mine * count + theirs * other_count) / (count + other_count); };
  scores.loss = mean(scores.loss, other.scores.loss);
  if (other.scores.top1) scores.top1 = mean(scores.top1.value_or(0), *other.scores.top1);
  scores.num_samples += other.scores.num_samples;
  seconds += other.seconds;
  waited_seconds += other.waited_seconds;
}

void write_run_state(const RunState& run, const torch::Tensor& sums, state::Dict& tree) {
  tree.add("epoch", run.progress.epoch);
  tree.add("step", run.progress.step);
  tree.add("samples_seen", run.progress.samples_seen);
  tree.add("samples_in_epoch", run.progress.samples_in_epoch);
  tree.add("best", tree_of(run.best_validation));
  tree.add("last_validation", tree_of(run.last_validation));
  state::Dict meters;
  meters.add("sums", sums);
  meters.add("open", tree_of(run.open));
  meters.add("epoch", tree_of(run.epoch));
  meters.add("whole", tree_of(run.whole));
  tree.add("meters", std::move(meters));
}

RunState read_run_state(const state::View& view) {
  const auto meters = view.at("meters");
  return {.progress = {.epoch = view.at("epoch").integer(),
                       .step = view.at("step").integer(),
                       .samples_seen = view.at("samples_seen").integer(),
                       .samples_in_epoch = view.at("samples_in_epoch").integer()},
          .open = read_interval(meters.at("open")),
          .epoch = read_interval(meters.at("epoch")),
          .whole = read_interval(meters.at("whole")),
          .last_validation = read_validation(view.at("last_validation")),
          .best_validation = read_validation(view.at("best"))};
}

}  // namespace trainer::engine
