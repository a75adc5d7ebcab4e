#pragma once
// The events of metrics.jsonl.

#include <filesystem>

#include "history/run_record.h"

namespace trainer::history {

// Adds what the file says to `run`; its state is the one with which it ended, kFailed without an end. Of `train` only the latest event is
// used with Detail::kOverview. A missing file changes nothing.
void read_metrics_file(const std::filesystem::path& file, Detail detail, RunRecord& run);

}  // namespace trainer::history
