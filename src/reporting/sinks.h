#pragma once
// The forms that events are written in. A sink that writes a file throws Error, naming it, when it cannot be written. Files that are
// there already are continued, not replaced; summary.json alone is replaced.

#include <filesystem>
#include <memory>

#include "base/log.h"
#include "reporting/events.h"

namespace trainer::reporting {

enum class Progress {
  kBar,    // training is one redrawn line on stderr; its plain lines go to the logger's files alone
  kPlain,  // a line for each interval
  kNone,   // nothing of training on stderr; its plain lines go to the logger's files alone
};

// Lines through the logger: the start, each training interval as `progress` has it, each validation, the end. `colour` is for the bar.
// The logger outlives the sink. Under kBar the logger's terminal sink is replaced, so that every line finds the bar out of its way,
// and put back at the end: no other thread may log while this sink is made or destroyed.
std::unique_ptr<Sink> make_console(Logger& logger, Progress progress, bool colour);
// One JSON object a line, with `event` (start or resume, train, warning, validation, checkpoint, end), `time` (Unix seconds), `epoch` (from
// 0) and `step`. Values that an event does not have are left out; those that are not finite are null.
std::unique_ptr<Sink> make_jsonl(const std::filesystem::path& file);
// One row an epoch, with a header; cells without a value are empty. A new file has `columns`, of which details are left out; a file that
// is continued keeps the columns of its header.
std::unique_ptr<Sink> make_csv(const std::filesystem::path& file, const MetricColumns& columns);
// Final and best metrics, seconds, images per second and the reason of the end; written once, atomically.
std::unique_ptr<Sink> make_summary(const std::filesystem::path& file);
// An event file that TensorBoard opens, in `folder`, which is created where needed. Its x axis is the step.
std::unique_ptr<Sink> make_tensorboard(const std::filesystem::path& folder);

}  // namespace trainer::reporting
