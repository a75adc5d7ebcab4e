#pragma once
// A progress bar: one line of a terminal that is redrawn repeatedly. Every function is thread-safe.

#include <chrono>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>

#include "reporting/values.h"

namespace trainer::reporting {

// The percentage, a bar, and the fields, in at most `width` columns (4 or more). Fields are left out, the least important first, until
// there is room for a bar of ten cells; a line too short for that has a shorter bar or none, and its end is cut off. `fraction` is the
// completed part, 0 to 1.
std::string format_bar(const Fields& fields, double fraction, size_t width, bool colour);

class ProgressBar {
 public:
  using Clock = std::chrono::steady_clock;

  // `stream` must outlive the bar. The width is the terminal's, queried for each drawing; 79 if `stream` is not a terminal.
  ProgressBar(std::FILE* stream, bool colour) : stream_(stream), colour_(colour) {}
  ~ProgressBar() { clear(); }

  // Whether the bar is not on the terminal, or was drawn a tenth of a second ago or earlier.
  bool due(Clock::time_point now) const;
  void draw(const Fields& fields, double fraction, Clock::time_point now);
  void clear();
  // Erases the bar and calls `print`. The bar is not on the terminal until the next drawing.
  void print_above(const std::function<void()>& print);

 private:
  void erase();
  void write(const std::string& text) const;

  std::FILE* stream_;
  bool colour_;
  mutable std::mutex mutex_;  // guards the members below and the terminal's line
  bool is_drawn_ = false;
  Clock::time_point drawn_at_;
};

}  // namespace trainer::reporting
