#pragma once
// A progress bar: one line of a terminal that is redrawn repeatedly. All functions are thread-safe.

#include <chrono>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace trainer::reporting {

// The percentage, a bar if there is room for one, and the fields, in at most `width` columns (4 or more). While the text is too long, the
// last field but one is omitted if there are three or more; then the end is cut. `fraction`: the part done, 0 to 1. Fields are ASCII.
std::string format_bar(std::vector<std::string> fields, double fraction, size_t width, bool colour);

class ProgressBar {
 public:
  using Clock = std::chrono::steady_clock;

  // `stream` is not owned. The width is the terminal's, queried at each drawing; 80 if `stream` is not a terminal.
  ProgressBar(std::FILE* stream, bool colour) : stream_(stream), colour_(colour) {}
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Whether a tenth of a second has passed since the last drawing.
  bool due(Clock::time_point now) const;
  void draw(std::vector<std::string> fields, double fraction, Clock::time_point now);
  void clear();
  // Clears the bar, calls `print`, and redraws the bar below.
  void print_above(const std::function<void()>& print);

 private:
  size_t width() const;
  void write(const std::string& text) const;

  std::FILE* stream_;
  bool colour_;
  mutable std::mutex mutex_;  // guards the members below and the line of the terminal
  std::string line_;          // as drawn; empty if no bar is shown
  Clock::time_point drawn_;
};

}  // namespace trainer::reporting
