#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <chrono>
#include <cmath>
#include <memory>

#include "base/text.h"
#include "reporting/progress_bar.h"
#include "reporting/sinks.h"

namespace trainer::reporting {
namespace {

// Four decimals, or scientific notation with `digits` decimals if four decimals would hide the value.
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

void add_fields(std::vector<std::string>& fields, const Metrics& metrics, const char* prefix = "") {
  for (const auto& metric : metrics) {
    if (!metric.info.is_detail) fields.push_back(prefix + metric.info.name + " " + format_value(metric));
  }
}

std::vector<std::string> train_fields(const TrainEvent& event) {
  std::vector<std::string> fields = {fmt::format("epoch {}/{}", event.epoch + 1, event.num_epochs),
                                     fmt::format("step {}/{}", event.step_in_epoch, event.steps_per_epoch)};
  add_fields(fields, event.metrics);
  fields.push_back("lr " + format_lr(event.lr));
  fields.push_back(format_rate(event.images_per_second));
  fields.push_back(fmt::format("data {:.0f}%", 100 * event.data_wait));
  fields.push_back("mem " + format_bytes(event.memory_bytes));
  fields.push_back("ETA " + format_seconds(event.eta_seconds));
  return fields;
}

std::vector<std::string> validation_fields(const ValidationEvent& event) {
  std::vector<std::string> fields = {"validation", fmt::format("epoch {}/{}", event.epoch + 1, event.num_epochs)};
  add_fields(fields, event.metrics);
  add_fields(fields, event.ema_metrics, "ema_");
  fields.push_back(fmt::format("{} images", event.num_samples));
  fields.push_back(format_seconds(event.seconds));
  return fields;
}

// The value that `monitor` names, "validation/loss".
std::string monitored(const std::string& monitor, const ValidationEvent& event) {
  const auto* metric = find_metric(event.metrics, monitor.substr(monitor.find('/') + 1));
  return metric == nullptr ? "not measured" : format_value(*metric);
}

// Replaces the logger's terminal sink while a bar is shown.
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
    logger_.info("training  {} epochs  {} steps per epoch  global_batch_size {}  world_size {}  {} parameters", event.num_epochs,
                 event.steps_per_epoch, event.global_batch_size, event.world_size, event.num_parameters);
  }

  void on_train(const TrainEvent& event) override {
    const std::string line = join(train_fields(event), "  ");
    if (progress_ == Progress::kPlain) {
      logger_.info(line);
    } else {
      log_beside_terminal(line);
    }
    latest_ = event;
  }

  void on_step(int64_t step_in_epoch, int64_t steps_per_epoch) override {
    const auto now = ProgressBar::Clock::now();
    if (!bar_ || !bar_->due(now)) return;
    const double fraction = static_cast<double>(step_in_epoch) / static_cast<double>(steps_per_epoch);
    if (!latest_) {
      bar_->draw({fmt::format("step {}/{}", step_in_epoch, steps_per_epoch)}, fraction, now);
      return;
    }
    latest_->step_in_epoch = step_in_epoch;
    bar_->draw(train_fields(*latest_), fraction, now);
  }

  void on_warning(const WarningEvent& event) override { logger_.warn("{}", event.message); }

  void on_validation(const ValidationEvent& event) override { logger_.info(join(validation_fields(event), "  ")); }

  void on_checkpoint(const CheckpointEvent& event) override {
    logger_.info("checkpoint  {}  {}  written in {:.2f} s, training paused for {:.3f} s", event.file, format_bytes(event.num_bytes),
                 event.seconds, event.pause_seconds);
  }

  // Until the next interval ends, the bar shows the latest values with the number of the current epoch.
  void on_epoch(const EpochEvent& event) override {
    if (latest_) latest_->epoch = event.epoch + 1;
  }

  void on_end(const EndEvent& event) override {
    if (bar_) bar_->clear();
    logger_.info("{}  {} steps  {}  {}", event.reason, event.step, format_seconds(event.seconds), format_rate(event.images_per_second));
    if (!event.final_validation || !event.best_validation) return;
    logger_.info("{}  final {}  best {} in epoch {}", event.monitor, monitored(event.monitor, *event.final_validation),
                 monitored(event.monitor, *event.best_validation), event.best_validation->epoch + 1);
  }

 private:
  void log_beside_terminal(const std::string& line) {
    const spdlog::details::log_msg message(logger_.name(), spdlog::level::info, line);
    for (const auto& sink : logger_.sinks()) {
      if (sink == terminal_ || !sink->should_log(message.level)) continue;
      sink->log(message);
      sink->flush();
    }
  }

  Logger& logger_;
  Progress progress_;
  std::unique_ptr<ProgressBar> bar_;
  std::shared_ptr<AboveBar> above_bar_;
  spdlog::sink_ptr terminal_;  // the logger's own terminal sink; null if it has none
  std::optional<TrainEvent> latest_;
};

}  // namespace

std::unique_ptr<Sink> make_console(Logger& logger, Progress progress, bool colour) {
  return std::make_unique<Console>(logger, progress, colour);
}

}  // namespace trainer::reporting
