#pragma once
// The sinks that write events. A sink that writes a file throws Error, which names the file, if it cannot be written. Existing files are
// appended to; only summary.json and evaluation.json are replaced.

#include <filesystem>
#include <memory>

#include "base/log.h"
#include "reporting/events.h"

namespace trainer::reporting {

enum class Progress {
  kBar,    // training is one redrawn line on stderr, where the last interval of each epoch stays as a line; all lines go to the files
  kPlain,  // a line for each interval
  kNone,   // nothing of training on stderr; its lines go only to the logger's files
};

// Logs the start, each training interval as `progress` selects, each validation, checkpoint and warning, and the end. `colour` applies to
// the bar. On a terminal, lines leave out their least important values, or break, to fit its width; files get them whole. The logger must
// outlive the sink. With kBar this sink replaces the logger's terminal sink, so that the bar is erased before every line, and its
// destructor restores it: no other thread may log during construction or destruction.
std::unique_ptr<Sink> make_console(Logger& logger, Progress progress, bool colour);
// One JSON object per line, with `event` (start or resume, train, warning, validation, checkpoint, end), `time` (Unix seconds), `epoch`
// (from 0) and `step`. Values that an event does not have are omitted; values that are not finite are null.
std::unique_ptr<Sink> make_jsonl(const std::filesystem::path& file);
// One row per epoch, after a header; cells without a value are empty. A new file has `columns` without details; an existing file keeps
// the columns of its header.
std::unique_ptr<Sink> make_csv(const std::filesystem::path& file, const MetricColumns& columns);
// Final and best metrics, seconds, images per second and why the run ended; written once, atomically.
std::unique_ptr<Sink> make_summary(const std::filesystem::path& file);
// The result of the latest validation with classes (evaluation.h), replaced atomically; without the confusion matrix if there are more than
// 200 classes. `class_names`: of each class; empty: the classes have only numbers. `logger`, which must outlive the sink, gets a warning if
// the file cannot be written.
std::unique_ptr<Sink> make_evaluation(const std::filesystem::path& file, std::vector<std::string> class_names, Logger& logger);
// An event file for TensorBoard in `folder`, which is created if needed. The x axis is the step.
std::unique_ptr<Sink> make_tensorboard(const std::filesystem::path& folder);

}  // namespace trainer::reporting
