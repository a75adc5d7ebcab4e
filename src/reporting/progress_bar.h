#pragma once
// A progress bar: one line of a terminal that is redrawn repeatedly. Every function is thread-safe.

#include <chrono>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace trainer::reporting {

// The percentage, a bar if it fits, and the fields, in at most `width` columns (4 or more). While the line is too long and has three or
// more fields, the last but one is removed; then the end is cut off. `fraction` is the completed part, 0 to 1. Fields must be ASCII.
std::string format_bar(std::vector<std::string> fields, double fraction, size_t width, bool colour);

class ProgressBar {
 public:
  using Clock = std::chrono::steady_clock;

  // `stream` must outlive the bar. The width is the terminal's, queried for each drawing; 80 if `stream` is not a terminal.
  ProgressBar(std::FILE* stream, bool colour) : stream_(stream), colour_(colour) {}
  ~ProgressBar() { clear(); }

  // Whether a tenth of a second has passed since the last drawing.
  bool due(Clock::time_point now) const;
  void draw(std::vector<std::string> fields, double fraction, Clock::time_point now);
  void clear();
  // Erases the bar, calls `print`, and draws the bar again below the printed text.
  void print_above(const std::function<void()>& print);

 private:
  size_t width() const;
  void write(const std::string& text) const;

  std::FILE* stream_;
  bool colour_;
  mutable std::mutex mutex_;  // guards the members below and the terminal's line
  std::string line_;          // as drawn; empty if there is no bar on the terminal
  Clock::time_point drawn_;
};

}  // namespace trainer::reporting
