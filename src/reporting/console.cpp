#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>

#include "base/plural.h"
#include "base/text.h"
#include "reporting/line.h"
#include "reporting/progress_bar.h"
#include "reporting/sinks.h"

namespace trainer::reporting {
namespace {

// Four decimals, or scientific notation with `digits` decimals for values too small or too large for that.
std::string format_number(double value, int digits) {
  const double size = std::abs(value);
  const bool readable = value == 0 || (size >= 1e-3 && size < 1e6) || !std::isfinite(value);
  return readable ? fmt::format("{:.4f}", value) : fmt::format("{:.{}e}", value, digits);
}

std::string format_lr(double lr) { return format_number(lr, 1); }
std::string format_value(const Metric& metric) {
  return metric.info.format == MetricFormat::kPercent ? fmt::format("{:.2f}%", 100 * metric.value) : format_number(metric.value, 4);
}
std::string format_rate(double images_per_second) {
  return fmt::format("{:.{}f} img/s", images_per_second, images_per_second < 10 ? 1 : 0);
}

std::string format_seconds(double seconds) { return format_duration(std::chrono::duration<double>(seconds)); }

// What is left out first in a line that is too long for its terminal. The bar shows the step too, and the line of a whole epoch does not
// need it.
enum Importance : int { kMemory, kDataWait, kStep, kLr, kRate, kEta, kMetric = 100 };

// The first metrics are more important than the later ones.
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
  fields.push_back({format_rate(event.images_per_second), kRate});
  fields.push_back({fmt::format("data {:.0f}%", 100 * event.data_wait), kDataWait});
  fields.push_back({"mem " + format_bytes(event.memory_bytes), kMemory});
  fields.push_back({"ETA " + format_seconds(event.eta_seconds), kEta});
  return fields;
}

Fields validation_fields(const ValidationEvent& event) {
  Fields fields = {{"validation"}, epoch_field(event.epoch, event.num_epochs)};
  add_metrics(fields, event.metrics, "", Field::kAlways);
  add_metrics(fields, event.ema_metrics, "ema_", Field::kAlways);
  fields.push_back({counted(event.num_samples, "image"), 0});
  fields.push_back({format_seconds(event.seconds), 1});
  return fields;
}

// The value of the metric `monitor`, such as "validation/loss".
std::string monitored(const std::string& monitor, const ValidationEvent& event) {
  const auto* metric = find_metric(event.metrics, monitor.substr(monitor.find('/') + 1));
  return metric == nullptr ? "not measured" : format_value(*metric);
}

// Replaces the terminal sink in the logger while a bar exists: erases the bar before each line.
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
  Console(Logger& logger, Progress progress, bool colour) : logger_(logger), progress_(progress) {
    if (progress == Progress::kBar) bar_ = std::make_unique<ProgressBar>(stderr, colour);
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
    const bool is_end_of_epoch = event.step_in_epoch == event.steps_per_epoch;
    if (progress_ == Progress::kPlain) {
      log(train_fields(event, kMetric));
    } else if (progress_ == Progress::kBar && is_end_of_epoch) {
      log(train_fields(event, kStep));
    } else {
      log_to_files(train_fields(event, kMetric));
    }
    latest_ = event;
  }

  // At the end of an epoch the bar makes room for the epoch's line.
  void on_step(int64_t step_in_epoch, int64_t steps_per_epoch) override {
    if (!bar_) return;
    const auto now = ProgressBar::Clock::now();
    if (step_in_epoch == steps_per_epoch) {
      bar_->clear();
    } else if (bar_->due(now)) {
      draw_bar(step_in_epoch, steps_per_epoch, now);
    }
  }

  void on_warning(const WarningEvent& event) override { logger_.warn("{}", event.message); }

  void on_validation(const ValidationEvent& event) override { log(validation_fields(event)); }

  void on_checkpoint(const CheckpointEvent& event) override {
    const Fields fields = {{"checkpoint"},
                           {event.file},
                           {format_bytes(event.num_bytes)},
                           {fmt::format("written in {:.2f} s, training paused for {:.3f} s", event.seconds, event.pause_seconds), 0}};
    auto with_short_name = fields;
    with_short_name[1].text = std::filesystem::path(event.file).filename().string();
    log(fields, with_short_name);
  }

  // Until the next interval ends, the bar shows the latest values, but with the number of the current epoch.
  void on_epoch(const EpochEvent& event) override {
    if (latest_) latest_->epoch = event.epoch + 1;
  }

  void on_end(const EndEvent& event) override {
    if (bar_) bar_->clear();
    log({{event.reason}, {counted(event.step, "step")}, {format_seconds(event.seconds)}, {format_rate(event.images_per_second)}});
    if (!event.final_validation || !event.best_validation) return;
    log({{event.monitor},
         {"final " + monitored(event.monitor, *event.final_validation)},
         {fmt::format("best {} in epoch {}, step {}", monitored(event.monitor, *event.best_validation), event.best_validation->epoch + 1,
                      event.best_validation->step)}});
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

  void log(const Fields& fields) { log(fields, fields); }

  // Files get the whole line, a terminal what fits into its width; `shorter`: the fields if those of greatest importance do not fit.
  void log(const Fields& fields, const Fields& shorter) {
    log_to_files(fields);
    if (!terminal_) return;
    const auto width = line_width(stderr);
    if (!width) {
      log_to(*terminal_, to_line(fields));
      return;
    }
    const auto line = to_line(fitted(fields, *width));
    log_to(*terminal_, line.size() <= *width ? line : wrapped(fitted(shorter, *width), *width));
  }

  void log_to_files(const Fields& fields) {
    const auto line = to_line(fields);
    for (const auto& sink : logger_.sinks()) {
      if (sink != terminal_) log_to(*sink, line);
    }
  }

  void log_to(spdlog::sinks::sink& sink, const std::string& line) {
    const spdlog::details::log_msg message(logger_.name(), spdlog::level::info, line);
    if (!sink.should_log(message.level)) return;
    sink.log(message);
    sink.flush();
  }

  Logger& logger_;
  Progress progress_;
  std::unique_ptr<ProgressBar> bar_;
  std::shared_ptr<AboveBar> above_bar_;
  spdlog::sink_ptr terminal_;  // as in the logger's sinks, so AboveBar under kBar; null if the logger has none
  std::optional<TrainEvent> latest_;
};

}  // namespace

std::unique_ptr<Sink> make_console(Logger& logger, Progress progress, bool colour) {
  return std::make_unique<Console>(logger, progress, colour);
}

}  // namespace trainer::reporting
