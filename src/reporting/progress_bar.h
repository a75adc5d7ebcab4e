#pragma once
// The output of training on a terminal: the table of the epochs, and below it the progress bar, a line that is redrawn.

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "reporting/values.h"
#include "trainer/events.h"

namespace trainer::reporting {

// The percentage, a bar, and the fields, in at most `width` columns (4 or more). The least important fields are omitted until there is room
// for a bar of ten cells. If there is too little room even then, the bar is shorter or missing, and the line is cut off. `fraction` is the
// completed part, 0 to 1.
std::string format_bar(const Fields& fields, double fraction, size_t width, bool colour);

// Every function is thread-safe.
class ProgressBar {
 public:
  using Clock = std::chrono::steady_clock;

  // `stream` must outlive the bar. The width is the terminal's, queried for each drawing; 79 if `stream` is not a terminal.
  ProgressBar(std::FILE* stream, bool colour) : stream_(stream), colour_(colour) {}
  ~ProgressBar() { clear(); }

  // Whether the bar is not on the terminal, or was last drawn at least a tenth of a second ago.
  bool due(Clock::time_point now) const;
  void draw(const Fields& fields, double fraction, Clock::time_point now);
  void clear();
  // Erases the bar and calls `print`. The bar appears again at the next drawing.
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

// The table of the finished epochs on a terminal: a heading, and a row for each epoch.
class EpochTable {
 public:
  // `metrics`: those with is_detail have no column; without validation metrics, the heading has no legend for the mark of the best epoch.
  // `with_ema`: whether there are columns for the averaged parameters. `colour`: whether the row of each best epoch so far is bold.
  EpochTable(MetricColumns metrics, bool with_ema, bool colour) : metrics_(std::move(metrics)), with_ema_(with_ema), colour_(colour) {}

  // The lines to print for this epoch, each with its line break: its row, preceded by the heading the first time. The least important
  // columns are omitted until the rest fits into `width`; the heading is repeated when the columns change. ASCII.
  std::string lines(const EpochEvent& event, size_t width);

 private:
  struct Column {
    std::string group;  // the word above the titles of neighbouring columns; empty: none
    std::string title;
    size_t width = 0;
    int importance = 0;
    std::string text;  // of this epoch
  };

  std::vector<Column> columns_of(const EpochEvent& event) const;
  std::string heading(const std::vector<Column>& columns) const;

  MetricColumns metrics_;
  bool with_ema_;
  bool colour_;
  std::string heading_;  // the last printed one
};

}  // namespace trainer::reporting
