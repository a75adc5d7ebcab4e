#pragma once
// One line of a terminal that is drawn again and again. Every function may be called by any thread.

#include <chrono>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace trainer::reporting {

// The percentage, a bar where there is room for one, and the fields, in at most `width` columns (4 or more): while they are too long,
// the last but one of three or more is left out; then the end is cut. `fraction`: what is done, 0 to 1. Fields are ASCII.
std::string format_bar(std::vector<std::string> fields, double fraction, size_t width, bool colour);

class ProgressBar {
 public:
  using Clock = std::chrono::steady_clock;

  // `stream` stays the caller's. The width is the terminal's, asked at each drawing; 80 where it is none.
  ProgressBar(std::FILE* stream, bool colour) : stream_(stream), colour_(colour) {}
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Whether a tenth of a second has passed since the last drawing.
  bool due(Clock::time_point now) const;
  void draw(std::vector<std::string> fields, double fraction, Clock::time_point now);
  void clear();
  // Calls `print` with the bar out of the way, and puts it back below.
  void print_above(const std::function<void()>& print);

 private:
  size_t width() const;
  void write(const std::string& text) const;

  std::FILE* stream_;
  bool colour_;
  mutable std::mutex mutex_;  // guards what follows, and the line of the terminal
  std::string line_;          // as drawn; empty when there is none
  Clock::time_point drawn_;
};

}  // namespace trainer::reporting
