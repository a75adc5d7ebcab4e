#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/log.h"
#include "reporting/progress_bar.h"

namespace trainer::commands {

// Shows the progress of a command through the samples of a data set: a bar on a terminal, otherwise a line for each tenth.
class SampleProgress {
 public:
  // `what`: "training: read", before "10 of 100 samples". `begin`: the number of samples that were done before. `logger` must outlive this
  // object.
  SampleProgress(std::string what, int64_t begin, int64_t size, Logger& logger);

  void update(int64_t num_done);
  // Removes the bar, until the next update.
  void clear() {
    if (bar_) bar_->clear();
  }
  // Calls `log`, which must log a line, so that the line appears above the bar.
  void log_above(const std::function<void()>& log);

 private:
  void draw(int64_t num_done);

  std::string what_;
  int64_t begin_;
  int64_t size_;
  Logger& logger_;
  int64_t tenths_;
  std::optional<reporting::ProgressBar> bar_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

// The same for an evaluation, once it has taken a few seconds.
class LateProgress {
 public:
  explicit LateProgress(Logger& logger) : logger_(logger) {}
  void update(int64_t num_done, int64_t num_samples) {
    if (!shown_ && std::chrono::steady_clock::now() - started_ > kLong) shown_.emplace("evaluated", num_done, num_samples, logger_);
    if (shown_) shown_->update(num_done);
  }
  void clear() {
    if (shown_) shown_->clear();
  }

 private:
  static constexpr std::chrono::seconds kLong{3};

  Logger& logger_;
  std::optional<SampleProgress> shown_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

}  // namespace trainer::commands
