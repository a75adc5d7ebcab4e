#pragma once
// The sinks that write events. A sink that cannot write its file throws an Error that names the file; that of make_evaluation() only warns.
// Existing files are appended to; only summary.json, evaluation.json and best_evaluation.json are replaced.

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/written_files.h"
#include "trainer/events.h"

namespace trainer::reporting {

class EventCommand;

enum class Progress {
  kBar,    // one redrawn line on stderr, and above it a table with a row for each epoch (progress_bar.h)
  kPlain,  // lines for the steps and the validations
  kNone,   // no training lines on stderr, only in the logger's files
};

struct ConsoleOptions {
  Progress progress = Progress::kPlain;
  bool colour = false;                      // of the bar and the table
  MetricColumns metrics = {};               // of the table; without validation metrics if nothing is validated
  bool with_ema = false;                    // whether the table has columns for the averaged parameters
  bool is_quiet = false;                    // stderr shows only warnings, errors and the result at the end of the run
  bool is_verbose = false;                  // stderr shows the checkpoints with kBar too
  std::chrono::seconds longest_silence{5};  // between two lines of a validation
  // Returns lines that tell the user what to do next, to be printed after the results at the end of the run.
  std::function<std::vector<std::string>(const EndEvent& event)> what_next = {};
};

// Logs the start, each training interval as `progress` selects, each validation, checkpoint and warning, and the end. On a terminal, lines
// omit their least important values, or wrap, to fit its width; files get the whole lines. The logger must outlive the sink. With kBar this
// sink replaces the logger's terminal sink, so that the bar is erased before every line, and its destructor restores it: no other thread
// may log during construction or destruction.
std::unique_ptr<Sink> make_console(Logger& logger, ConsoleOptions options);
// Writes one JSON object per line, with `event` (start or resume, train, warning, validation, checkpoint, end), `time` (Unix seconds),
// `epoch` (from 0) and `step`. Values that an event does not have are omitted; values that are not finite are null. `command`, which may
// be null and must outlive the sink, receives each line too.
std::unique_ptr<Sink> make_jsonl(const std::filesystem::path& file, EventCommand* command = nullptr);
// Writes a header and one row per epoch; cells without a value are empty. A new file has `columns`; an existing file keeps the columns of
// its header.
std::unique_ptr<Sink> make_csv(const std::filesystem::path& file, const MetricColumns& columns);
// At the end of the run, atomically writes the final and best metrics, seconds, images per second and the reason for the end.
std::unique_ptr<Sink> make_summary(const std::filesystem::path& file);
enum class Validations { kAll, kBest };
// Writes the result (evaluation.h) of the latest validation, or with kBest of the best one so far, for classes, labels or numbers; the file
// is replaced atomically. It has no matrix of confusion or co-occurrence if there are more than 200 classes. `output_names`: of each
// class or number; empty: they have no names. If the file cannot be written, `logger`, which must outlive the sink, receives a warning.
std::unique_ptr<Sink> make_evaluation(const std::filesystem::path& file, Validations which, std::vector<std::string> output_names,
                                      Logger& logger);

// An event file for TensorBoard in `folder`, which is created if needed, with a name that sorts after those of the existing files. The x
// axis is the step. The name of the file is added to `written`, which may be null.
std::unique_ptr<Sink> make_tensorboard(const std::filesystem::path& folder, WrittenFiles* written = nullptr);

// Calls a function at the end of the run.
class AtEnd : public Sink {
 public:
  explicit AtEnd(std::function<void(const EndEvent& event)> act) : act_(std::move(act)) {}
  void on_end(const EndEvent& event) override { act_(event); }

 private:
  std::function<void(const EndEvent& event)> act_;
};

// Passes every event to every sink, in the order in which the sinks were added. Calls `check`, if there is one, before each event but the
// progress between two events, which no file records; if it throws, no sink receives the event.
class Reporter : public Sink {
 public:
  explicit Reporter(std::function<void()> check = {}) : check_(std::move(check)) {}

  void add(std::unique_ptr<Sink> sink) { sinks_.push_back(std::move(sink)); }
  void on_start(const StartEvent& event) override { check_and_pass(&Sink::on_start, event); }
  void on_train(const TrainEvent& event) override { check_and_pass(&Sink::on_train, event); }
  void on_step(int64_t step_in_epoch, int64_t steps_per_epoch) override { pass(&Sink::on_step, step_in_epoch, steps_per_epoch); }
  void on_progress(const TrainEvent& event) override { pass(&Sink::on_progress, event); }
  void on_validation_step(int64_t num_done, int64_t num_images) override { pass(&Sink::on_validation_step, num_done, num_images); }
  void on_warning(const WarningEvent& event) override { check_and_pass(&Sink::on_warning, event); }
  void on_validation(const ValidationEvent& event) override { check_and_pass(&Sink::on_validation, event); }
  void on_epoch(const EpochEvent& event) override { check_and_pass(&Sink::on_epoch, event); }
  void on_checkpoint(const CheckpointEvent& event) override { check_and_pass(&Sink::on_checkpoint, event); }
  void on_histograms(const HistogramsEvent& event) override { check_and_pass(&Sink::on_histograms, event); }
  void on_end(const EndEvent& event) override { check_and_pass(&Sink::on_end, event); }

 private:
  template <class Handler, class... Args>
  void pass(Handler on_event, const Args&... args) const {
    for (const auto& sink : sinks_) (sink.get()->*on_event)(args...);
  }
  template <class Handler, class Event>
  void check_and_pass(Handler on_event, const Event& event) const {
    if (check_) check_();
    pass(on_event, event);
  }

  std::function<void()> check_;
  std::vector<std::unique_ptr<Sink>> sinks_;
};

}  // namespace trainer::reporting
