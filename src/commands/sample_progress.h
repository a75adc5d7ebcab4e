#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/log.h"
#include "reporting/progress_bar.h"

namespace trainer::commands {

// Shows the progress of a command: a bar on a terminal, otherwise a line for each tenth.
class SampleProgress {
 public:
  // `what`: "training: read", before "10 of 100 samples". `begin`: the number of samples that were done before. `patience`: nothing is
  // shown until this time has passed. `logger` must outlive this object.
  SampleProgress(std::string what, Logger& logger, int64_t begin = 0, std::chrono::seconds patience = {}, std::string unit = "samples");

  void update(int64_t num_done, int64_t size);
  // Removes the bar, until the next update.
  void clear() {
    if (bar_) bar_->clear();
  }
  // Calls `log`, which must log a line, so that the line appears above the bar.
  void log_above(const std::function<void()>& log) { bar_ ? bar_->print_above(log) : log(); }

 private:
  using Clock = reporting::ProgressBar::Clock;

  std::string what_;
  Logger& logger_;
  int64_t begin_;
  int64_t num_done_;
  std::chrono::seconds patience_;
  std::string unit_;
  std::optional<reporting::ProgressBar> bar_;
  Clock::time_point started_ = Clock::now();
};

// After which a command that usually ends at once shows its progress.
inline constexpr std::chrono::seconds kLongWait{3};

}  // namespace trainer::commands
