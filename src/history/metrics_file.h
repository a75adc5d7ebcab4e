#pragma once
// The events of metrics.jsonl.

#include <filesystem>

#include "history/run_record.h"

namespace trainer::history {

// Adds what the file says to `run`; its state is the one with which it ended, kFailed without an end. With Detail::kOverview only the
// latest training event of a session is used, and the times of the others. A missing file changes nothing.
void read_metrics_file(const std::filesystem::path& file, Detail detail, RunRecord& run);

}  // namespace trainer::history
