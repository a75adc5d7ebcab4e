#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/text.h"
#include "reporting/progress_bar.h"
#include "reporting/sinks.h"
#include "reporting/values.h"

namespace trainer::reporting {
namespace {

constexpr size_t kWidthWithoutTerminal = 79;

// Fields with the lowest importance are omitted first in a line that is too long for its terminal.
enum Importance : int { kMemory, kDataWait, kStep, kLr, kRate, kEta, kMetric = 100 };

// Earlier metrics are more important than later ones.
void add_metrics(Fields& fields, const Metrics& metrics, const char* prefix, int importance) {
  for (const auto& metric : metrics) {
    if (!metric.info.is_detail) fields.push_back({prefix + metric.info.name + " " + format_value(metric), importance--});
  }
}

Field epoch_field(int64_t epoch, int64_t num_epochs) { return {fmt::format("epoch {}/{}", epoch + 1, num_epochs)}; }

Fields train_fields(const TrainEvent& event, int step_importance) {
  Fields fields = {epoch_field(event.epoch, event.num_epochs),
                   {fmt::format("step {}/{}", event.step_in_epoch, event.steps_per_epoch), step_importance}};
  add_metrics(fields, event.metrics, "", kMetric);
  fields.push_back({"lr " + format_lr(event.lr), kLr});
  fields.push_back({format_rate(event.images_per_second) + " img/s", kRate});
  fields.push_back({fmt::format("data {:.0f}%", 100 * event.data_wait), kDataWait});
  fields.push_back({"mem " + format_bytes(event.memory_bytes), kMemory});
  fields.push_back({"ETA " + format_seconds(event.eta_seconds), kEta});
  return fields;
}

Fields validation_fields(const ValidationEvent& event) {
  Fields fields = {{"validation"}, epoch_field(event.epoch, event.num_epochs)};
  if (event.is_within_epoch) fields.push_back({fmt::format("step {}", event.step)});
  add_metrics(fields, event.metrics, "", Field::kAlways);
  add_metrics(fields, event.ema_metrics, "ema_", Field::kAlways);
  if (event.is_within_epoch && event.is_best) fields.push_back({"best so far", 2});
  fields.push_back({counted(event.num_samples, "image"), 0});
  fields.push_back({format_seconds(event.seconds), 1});
  return fields;
}

// The value of the metric `monitor`, such as "validation/loss".
std::string monitored(const std::string& monitor, const ValidationEvent& event) {
  const auto* metric = find_metric(event.metrics, monitor.substr(monitor.find('/') + 1));
  return metric == nullptr ? "not measured" : format_value(*metric);
}

// Replaces the terminal sink of the logger while a bar exists, in order to erase the bar before each line.
class AboveBar : public spdlog::sinks::sink {
 public:
  AboveBar(spdlog::sink_ptr terminal, ProgressBar& bar) : terminal_(std::move(terminal)), bar_(bar) {}
  const spdlog::sink_ptr& terminal() const { return terminal_; }

  void log(const spdlog::details::log_msg& message) override {
    if (terminal_->should_log(message.level)) bar_.print_above([&] { terminal_->log(message); });
  }
  void flush() override { terminal_->flush(); }
  void set_pattern(const std::string& pattern) override { terminal_->set_pattern(pattern); }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override { terminal_->set_formatter(std::move(formatter)); }

 private:
  spdlog::sink_ptr terminal_;
  ProgressBar& bar_;
};

class Console : public Sink {
 public:
  Console(Logger& logger, ConsoleOptions options) : logger_(logger), options_(std::move(options)) {
    if (options_.progress == Progress::kBar) {
      bar_ = std::make_unique<ProgressBar>(stderr, options_.colour);
      table_.emplace(options_.metrics, options_.with_ema, options_.colour);
    }
    for (auto& sink : logger_.sinks()) {
      if (dynamic_cast<spdlog::sinks::stderr_sink_mt*>(sink.get()) == nullptr) continue;
      if (bar_) sink = above_bar_ = std::make_shared<AboveBar>(sink, *bar_);
      terminal_ = sink;
      break;
    }
  }

  ~Console() override {
    for (auto& sink : logger_.sinks()) {
      if (above_bar_ && sink == above_bar_) sink = above_bar_->terminal();
    }
  }

  void on_start(const StartEvent& event) override {
    if (event.resume)
      logger_.info("resumes from {}: epoch {}, step {}", event.resume->checkpoint, event.resume->epoch + 1, event.resume->step);
    log({{"training"},
         {event.num_steps ? counted(*event.num_steps, "step") : counted(event.num_epochs, "epoch")},
         {counted(event.steps_per_epoch, "step") + " per epoch"},
         {fmt::format("global_batch_size {}", event.global_batch_size)},
         {fmt::format("world_size {}", event.world_size)},
         {counted(event.num_parameters, "parameter")}});
  }

  void on_train(const TrainEvent& event) override {
    log_progress(train_fields(event, kMetric));
    latest_ = event;
  }

  void on_progress(const TrainEvent& event) override { on_train(event); }

  // The last step of an epoch is always drawn, because the bar may stay unchanged for a while after it.
  void on_step(int64_t step_in_epoch, int64_t steps_per_epoch) override {
    if (!bar_) return;
    const auto now = ProgressBar::Clock::now();
    if (step_in_epoch == steps_per_epoch || bar_->due(now)) draw_bar(step_in_epoch, steps_per_epoch, now);
  }

  void on_validation_step(int64_t num_done, int64_t num_images) override {
    if (!latest_) return;
    const Fields fields = {
        {"validation"}, epoch_field(latest_->epoch, latest_->num_epochs), {fmt::format("{}/{}", num_done, counted(num_images, "image"))}};
    const auto now = ProgressBar::Clock::now();
    if (bar_ && bar_->due(now)) bar_->draw(fields, static_cast<double>(num_done) / static_cast<double>(num_images), now);
    if (now - progress_logged_at_ >= options_.longest_silence) log_progress(fields);
  }

  void on_warning(const WarningEvent& event) override { logger_.warn("{}", event.message); }

  void on_validation(const ValidationEvent& event) override {
    log(validation_fields(event), table_ && !event.is_within_epoch ? On::kFiles : On::kTerminalToo);
  }

  void on_checkpoint(const CheckpointEvent& event) override {
    Fields fields = {{"checkpoint"},
                     {event.file},
                     {format_bytes(event.num_bytes)},
                     {fmt::format("written in {:.2f} s, training paused for {:.3f} s", event.seconds, event.pause_seconds), 0}};
    if (!event.removed.empty()) fields.push_back({"removed " + join(event.removed, ", "), 0});
    auto with_short_name = fields;
    with_short_name[1].text = std::filesystem::path(event.file).filename().string();
    log(fields, table_ && !options_.is_verbose ? On::kFiles : On::kTerminalToo, with_short_name);
  }

  // Until the next interval ends, the bar shows the latest values with the number of the current epoch.
  void on_epoch(const EpochEvent& event) override {
    if (latest_) latest_->epoch = event.epoch + 1;
    if (!table_) return;
    const auto lines = table_->lines(event, line_width(stderr).value_or(kWidthWithoutTerminal));
    // Not printed by the logger, which would escape the colours.
    bar_->print_above([&] {
      std::fwrite(lines.data(), 1, lines.size(), stderr);
      std::fflush(stderr);
    });
  }

  void on_end(const EndEvent& event) override {
    if (bar_) bar_->clear();
    Fields fields = {
        {event.reason}, {counted(event.step, "step")}, {format_seconds(event.seconds)}, {format_rate(event.images_per_second) + " img/s"}};
    // The error that ended a run is logged elsewhere.
    if (event.reason != "failed" && !event.message.empty()) fields.push_back({event.message});
    log(fields, On::kQuietTerminalToo);
    if (event.final_validation && event.best_validation) {
      log({{event.monitor},
           {"final " + monitored(event.monitor, *event.final_validation)},
           {fmt::format("best {} in epoch {}, step {}", monitored(event.monitor, *event.best_validation), event.best_validation->epoch + 1,
                        event.best_validation->step)}},
          On::kQuietTerminalToo);
    }
    if (!options_.what_next) return;
    // A line of one field is not shortened or wrapped, because people copy the commands.
    for (const auto& line : options_.what_next(event)) log({{line}});
  }

 private:
  void draw_bar(int64_t step_in_epoch, int64_t steps_per_epoch, ProgressBar::Clock::time_point now) {
    const double fraction = static_cast<double>(step_in_epoch) / static_cast<double>(steps_per_epoch);
    if (!latest_) {
      bar_->draw({{fmt::format("step {}/{}", step_in_epoch, steps_per_epoch)}}, fraction, now);
      return;
    }
    latest_->step_in_epoch = step_in_epoch;
    bar_->draw(train_fields(*latest_, kStep), fraction, now);
  }

  // Only files get lines of progress if the terminal has a bar or none are wanted there.
  void log_progress(const Fields& fields) {
    progress_logged_at_ = ProgressBar::Clock::now();
    log(fields, options_.progress == Progress::kPlain ? On::kTerminalToo : On::kFiles);
  }

  enum class On { kFiles, kTerminalToo, kQuietTerminalToo };

  // Files get the whole line, a terminal the fields that fit into its width, or several lines if no more may be omitted. `shorter`: for a
  // terminal if `fields` would need several lines.
  void log(const Fields& fields, On on = On::kTerminalToo, const Fields& shorter = {}) {
    const auto line = to_line(fields);
    for (const auto& sink : logger_.sinks()) {
      const bool is_terminal = sink == terminal_;
      if (is_terminal && (on == On::kFiles || (options_.is_quiet && on != On::kQuietTerminalToo))) continue;
      // The terminal of a quiet console does not accept this level.
      if (!sink->should_log(spdlog::level::info) && !(is_terminal && options_.is_quiet)) continue;
      auto shown = line;
      if (const auto width = is_terminal ? line_width(stderr) : std::nullopt) {
        shown = to_line(fitted(fields, *width));
        if (shown.size() > *width) shown = wrapped(fitted(shorter.empty() ? fields : shorter, *width), *width);
      }
      sink->log(spdlog::details::log_msg(logger_.name(), spdlog::level::info, shown));
      sink->flush();
    }
  }

  Logger& logger_;
  ConsoleOptions options_;
  std::unique_ptr<ProgressBar> bar_;  // with its table, under kBar
  std::optional<EpochTable> table_;
  std::shared_ptr<AboveBar> above_bar_;
  spdlog::sink_ptr terminal_;         // the one in the logger's sinks (AboveBar with kBar); null if the logger has none
  std::optional<TrainEvent> latest_;  // of on_train or on_progress
  ProgressBar::Clock::time_point progress_logged_at_;
};

}  // namespace

std::unique_ptr<Sink> make_console(Logger& logger, ConsoleOptions options) { return std::make_unique<Console>(logger, std::move(options)); }

}  // namespace trainer::reporting
