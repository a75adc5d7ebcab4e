#pragma once
// The table of the finished epochs on a terminal: a heading, and a row for each epoch.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "trainer/events.h"

namespace trainer::reporting {

class EpochTable {
 public:
  // `metrics`: what is measured; details have no column, and without validation metrics no epoch is the best. `with_ema`: also with the
  // averaged parameters. `colour`: rows of the best epoch so far are bold.
  EpochTable(MetricColumns metrics, bool with_ema, bool colour) : metrics_(std::move(metrics)), with_ema_(with_ema), colour_(colour) {}

  // The lines to print for this epoch, each with its line break: its row, and before the first one the heading. Columns are left out, the
  // least important first, until they fit into `width`; the heading is repeated when other columns fit than before. ASCII.
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
  std::string heading_;  // that was printed last
};

}  // namespace trainer::reporting
