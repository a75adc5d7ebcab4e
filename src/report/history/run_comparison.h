#pragma once
// Compares runs side by side: named values, with a column for each run.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "report/history/run_record.h"

namespace trainer::history {

// The names of the runs' folders, or the whole paths if a name is not unique.
std::vector<std::string> names_of(std::span<const RunRecord> runs);

struct Row {
  std::string name;                                // "optimizer.lr"
  std::vector<std::optional<std::string>> values;  // of each run; empty: the run has none

  bool differs() const;
};

// Each key of the resolved experiment files, in their order; a list is one value.
std::vector<Row> config_rows(std::span<const RunRecord> runs);
// Each value of environment.json. The distinct values of the ranks are joined: "vm0, vm1". Process ids are skipped, because they always
// differ.
std::vector<Row> environment_rows(std::span<const RunRecord> runs);
// The state, length, best and latest metrics, and speed.
std::vector<Row> result_rows(std::span<const RunRecord> runs);
// A warning if two runs have validated on different samples; otherwise empty. `config`: config_rows() of the runs.
std::string note_of_validation(std::span<const RunRecord> runs, std::span<const Row> config);

}  // namespace trainer::history
