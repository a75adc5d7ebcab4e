#include "train/engine/run_state.h"

#include "base/metric_order.h"
#include "train/task/task.h"

namespace trainer::engine {

void EarlyStopping::observe(double value, bool higher_is_better, double min_delta) {
  const bool improves = is_better(value, best, higher_is_better, min_delta);
  if (improves) best = value;
  num_not_better = improves ? 0 : num_not_better + 1;
}

bool EarlyStopping::is_over(const std::optional<EarlyStoppingOptions>& options) const {
  return options && num_not_better >= options->patience;
}

state::Dict tree_of(const EarlyStopping& early_stopping) {
  state::Dict dict;
  dict.add("best", early_stopping.best ? state::Tree(*early_stopping.best) : state::Tree());
  dict.add("num_not_better", early_stopping.num_not_better);
  return dict;
}

EarlyStopping read_early_stopping(const state::View& view) {
  EarlyStopping early_stopping{.num_not_better = view.at("num_not_better").integer()};
  if (const auto best = view.at("best"); !best.is_none()) early_stopping.best = best.number();
  return early_stopping;
}

namespace {

// Adds a key for each metric of any task, None for metrics that were not measured.
void add_metrics(state::Dict& dict, const std::string& prefix, const reporting::Metrics& metrics,
                 const std::vector<reporting::MetricInfo>& columns) {
  for (const auto& info : columns) {
    const auto value = reporting::value_of(metrics, info.name);
    dict.add(prefix + info.name, value ? state::Tree(*value) : state::Tree());
  }
}

reporting::Metrics read_metrics(const state::View& view, const std::string& prefix, const std::vector<reporting::MetricInfo>& columns) {
  reporting::Metrics metrics;
  for (const auto& info : columns) {
    const auto value = view.at(prefix + info.name);
    if (!value.is_none()) metrics.push_back({info, value.number()});
  }
  return metrics;
}

std::vector<reporting::MetricInfo> without_details(std::vector<reporting::MetricInfo> columns) {
  std::erase_if(columns, [](const reporting::MetricInfo& info) { return info.is_detail; });
  return columns;
}

state::Dict tree_of(const Interval& interval) {
  state::Dict dict;
  dict.add("num_samples", interval.measured.num_samples);
  add_metrics(dict, "", interval.measured.metrics, task::all_metrics().train);
  dict.add("seconds", interval.seconds);
  dict.add("waited_seconds", interval.waited_seconds);
  return dict;
}

Interval read_interval(const state::View& view) {
  Interval interval{.seconds = view.at("seconds").number(), .waited_seconds = view.at("waited_seconds").number()};
  interval.measured.num_samples = view.at("num_samples").integer();
  interval.measured.metrics = read_metrics(view, "", task::all_metrics().train);
  return interval;
}

// Saves only the thresholds, because predictions need no other results per label.
void add_thresholds(state::Dict& dict, const char* key, const reporting::LabelResults& labels) {
  if (labels.classes.empty()) return;
  state::List thresholds;
  for (const auto& label : labels.classes) thresholds.emplace_back(label.threshold);
  dict.add(key, std::move(thresholds));
}

reporting::LabelResults read_thresholds(const state::View& view, const char* key) {
  reporting::LabelResults labels;
  const auto thresholds = view.find(key);
  if (!thresholds) return labels;
  for (const auto& threshold : thresholds->elements()) labels.classes.push_back({.threshold = threshold.number()});
  return labels;
}

state::Tree tree_of(const std::optional<reporting::ValidationEvent>& event) {
  if (!event) return {};
  const auto columns = task::all_metrics().validation;
  state::Dict dict;
  dict.add("epoch", event->epoch);
  dict.add("step", event->step);
  add_metrics(dict, "", event->metrics, columns);
  dict.add("num_samples", event->num_samples);
  dict.add("confusion", torch::tensor(event->classes.confusion, torch::kInt64));
  add_thresholds(dict, "thresholds", event->labels);
  add_thresholds(dict, "ema_thresholds", event->ema_labels);
  add_metrics(dict, "ema_", event->ema_metrics, without_details(columns));
  dict.add("seconds", event->seconds);
  return dict;
}

std::optional<reporting::ValidationEvent> read_validation(const state::View& view) {
  if (view.is_none()) return std::nullopt;
  const auto confusion = view.at("confusion").tensor().to(torch::kInt64).contiguous();
  const auto* cells = confusion.const_data_ptr<int64_t>();
  const auto columns = task::all_metrics().validation;
  return reporting::ValidationEvent{.epoch = view.at("epoch").integer(),
                                    .step = view.at("step").integer(),
                                    .metrics = read_metrics(view, "", columns),
                                    .num_samples = view.at("num_samples").integer(),
                                    .classes = {.confusion = {cells, cells + confusion.numel()}},
                                    .labels = read_thresholds(view, "thresholds"),
                                    .ema_labels = read_thresholds(view, "ema_thresholds"),
                                    .ema_metrics = read_metrics(view, "ema_", without_details(columns)),
                                    .seconds = view.at("seconds").number()};
}

}  // namespace

void Interval::add(const Interval& other) {
  const auto count = static_cast<double>(measured.num_samples);
  const auto other_count = static_cast<double>(other.measured.num_samples);
  auto means = other.measured.metrics;
  for (auto& metric : means) {
    const auto mine = reporting::value_of(measured.metrics, metric.info.name).value_or(0);
    metric.value = (mine * count + metric.value * other_count) / (count + other_count);
  }
  measured.metrics = std::move(means);
  measured.num_samples += other.measured.num_samples;
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
  tree.add("early_stopping", tree_of(run.early_stopping));
  state::Dict meters;
  meters.add("sums", sums);
  meters.add("open", tree_of(run.open));
  meters.add("epoch", tree_of(run.epoch));
  meters.add("whole", tree_of(run.whole));
  meters.add("run_seconds", run.clock.seconds());
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
          .clock = RunClock(meters.at("run_seconds").number()),
          .last_validation = read_validation(view.at("last_validation")),
          .best_validation = read_validation(view.at("best")),
          .early_stopping = read_early_stopping(view.at("early_stopping"))};
}

void IntervalClock::begin(int64_t step, const Interval& so_far) {
  first_step_ = step;
  start_ = Clock::now() - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(so_far.seconds));
  before_ = batches_.counts();
  before_.waited -= std::chrono::duration<double>(so_far.waited_seconds);
}

void IntervalClock::read(Interval& interval) const {
  interval.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  interval.waited_seconds = (batches_.counts().waited - before_.waited).count();
}

double IntervalClock::queue_depth() const {
  const auto counts = batches_.counts();
  const auto num_batches = counts.num_batches - before_.num_batches;
  return num_batches == 0 ? 0 : static_cast<double>(counts.num_ready - before_.num_ready) / static_cast<double>(num_batches);
}

}  // namespace trainer::engine
