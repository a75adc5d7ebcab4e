#pragma once
// Runs side by side: values by their names, with a column for each run.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "report/history/run_record.h"

namespace trainer::history {

// The names of the runs' folders, or their whole paths where a name is not unique.
std::vector<std::string> names_of(std::span<const RunRecord> runs);

struct Row {
  std::string name;                                // "optimizer.lr"
  std::vector<std::optional<std::string>> values;  // of each run; empty: that run has none

  bool differs() const;
};

// Each key of the resolved experiment files, in their order; a list is one value.
std::vector<Row> config_rows(std::span<const RunRecord> runs);
// Each value of environment.json. Those of all ranks are one value: "vm0, vm1". The numbers of processes, which always differ, are left
// out.
std::vector<Row> environment_rows(std::span<const RunRecord> runs);
// State, length, best and latest metrics, and speed.
std::vector<Row> result_rows(std::span<const RunRecord> runs);

}  // namespace trainer::history
