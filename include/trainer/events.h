#pragma once
// The events of a run and the sinks that receive them. Each sink writes the events in its own format. Every member has a default, so that
// an event can be constructed from some of its members. This header needs no LibTorch.
// In all events except Resume, `step` is the number of updates attempted since the beginning of the run, and `epoch`, from 0, is the epoch
// of the latest update. Files contain these numbers; the console counts epochs from 1, as in "epoch 3/100".

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/component.h"

namespace trainer::reporting {

enum class MetricFormat { kNumber, kPercent };

struct MetricInfo {
  std::string name;  // such as "loss"
  bool higher_is_better = false;
  MetricFormat format = MetricFormat::kNumber;  // on the console; files hold the value itself
  // A detail is not shown on the console or in TensorBoard, and not reported for the averaged parameters.
  bool is_detail = false;
};

struct Metric {
  MetricInfo info;
  double value = 0;
};

// Metrics in the order in which they are written.
using Metrics = std::vector<Metric>;

// The metrics that have a column in tables and checkpoints.
struct MetricColumns {
  std::vector<MetricInfo> train;
  std::vector<MetricInfo> validation;
};

inline const Metric* find_metric(const Metrics& metrics, std::string_view name) {
  const auto found = std::ranges::find(metrics, name, [](const Metric& metric) -> const std::string& { return metric.info.name; });
  return found == metrics.end() ? nullptr : &*found;
}

inline std::optional<double> value_of(const Metrics& metrics, std::string_view name) {
  const auto* metric = find_metric(metrics, name);
  return metric == nullptr ? std::nullopt : std::optional(metric->value);
}

// The samples whose confidence, the probability of the most probable class, is in one of several bins of equal width.
struct CalibrationBin {
  double confidence = 0;  // the mean confidence; 0 without samples
  double accuracy = 0;    // the fraction of correct predictions; 0 without samples
  int64_t count = 0;
};

// A wrongly classified sample.
struct Mistake {
  int64_t index = 0;  // among the evaluated samples
  int64_t label = 0;
  int64_t predicted = 0;
  double confidence = 0;  // the probability of the predicted class
  bool operator==(const Mistake&) const = default;
};

struct ClassResults {
  std::vector<int64_t> confusion = {};  // [actual][predicted], row by row; empty without classes
  std::vector<CalibrationBin> calibration = {};
  std::vector<Mistake> mistakes = {};  // the most confident ones, in descending order of confidence, then by index
};

// The result for one class of a multi-label task.
struct LabelResult {
  int64_t num_samples = 0;       // of the class
  double average_precision = 0;  // this and the next three members are 0 without samples
  double precision = 0;          // at the threshold
  double recall = 0;
  double f1 = 0;
  double threshold = 0.5;  // samples with at least this probability are assigned to the class: the threshold with the best F1
};

struct LabelResults {
  std::vector<LabelResult> classes = {};
  std::vector<int64_t> co_occurrence = {};  // the number of samples of both classes, [class][class] row by row
};

// The result for one of the numbers of a regression.
struct NumberResult {
  double mae = 0;
  double rmse = 0;
  double r2 = 0;
};

struct NumberResults {
  std::vector<NumberResult> numbers = {};
  // The targets and predictions of some evenly spread samples, [sample][number] row by row.
  std::vector<double> targets = {};
  std::vector<double> predictions = {};
};

// The distribution of the elements of a tensor.
struct Histogram {
  std::string name = {};  // such as "layer1.0.conv1.weight"
  double min = 0;
  double max = 0;
  double sum = 0;
  double sum_squares = 0;
  // For each interval: its upper limit (inclusive), and the number of elements in it.
  std::vector<double> limits = {};
  std::vector<int64_t> counts = {};
};

struct HistogramsEvent {
  int64_t epoch = 0;
  int64_t step = 0;
  std::vector<Histogram> parameters = {};
  std::vector<Histogram> gradients = {};  // of the latest step, summed over the ranks
};

// Emitted when a checkpoint is on the disk.
struct CheckpointEvent {
  int64_t epoch = 0;  // of the step
  int64_t step = 0;   // of the saved state
  std::string file = {};
  uint64_t num_bytes = 0;
  double pause_seconds = 0;               // how long training was blocked
  double seconds = 0;                     // duration of writing, while training continued
  std::vector<std::string> removed = {};  // the files of older checkpoints that were removed afterwards
};

// The point from which a resumed run continues.
struct Resume {
  std::string checkpoint = {};  // its file
  int64_t epoch = 0;            // the epoch of the next step
  int64_t step = 0;
  // The event of that checkpoint if this run saved it; the durations in the event are unknown (NaN).
  std::optional<CheckpointEvent> own_checkpoint = {};
};

struct StartEvent {
  std::optional<Resume> resume = {};
  int64_t num_epochs = 0;
  std::optional<int64_t> num_steps = {};  // of the whole training, if its length is a number of steps
  int64_t steps_per_epoch = 0;
  int64_t world_size = 1;
  int64_t global_batch_size = 0;
  int64_t num_parameters = 0;
  MetricColumns metrics = {};  // the metrics that the run measures
  std::string monitor = {};    // the metric that selects the best validation, such as "validation/loss"
  bool higher_is_better = false;
};

// One logging interval.
struct TrainEvent {
  int64_t epoch = 0;
  int64_t num_epochs = 0;
  int64_t step = 0;
  int64_t step_in_epoch = 0;  // from 1
  int64_t steps_per_epoch = 0;
  Metrics metrics = {};
  double lr = 0;
  double images_per_second = 0;
  double data_wait = 0;    // fraction of the interval's time spent waiting for data
  double queue_depth = 0;  // mean number of batches that were ready when training took one
  uint64_t memory_bytes = 0;
  std::optional<double> grad_scale = {};      // under float16
  std::optional<int64_t> skipped_steps = {};  // updates that the GradScaler has skipped so far
  double eta_seconds = 0;                     // estimated time to the end of the run, with its validations
};

// A problem that does not stop the run but needs attention.
struct WarningEvent {
  int64_t epoch = 0;
  int64_t step = 0;
  std::string message = {};
};

struct ValidationEvent {
  int64_t epoch = 0;
  int64_t num_epochs = 0;
  int64_t step = 0;
  Metrics metrics = {};
  int64_t num_samples = 0;
  ClassResults classes = {};
  LabelResults labels = {};      // of a multi-label task
  NumberResults numbers = {};    // of a regression
  LabelResults ema_labels = {};  // as labels, with the averaged parameters
  Metrics ema_metrics = {};      // with the averaged parameters, if the run has them; written as ema_<name>
  double seconds = 0;
  bool is_best = false;          // better than all earlier validations of the run
  bool is_within_epoch = false;  // false: after the last step of an epoch, or at the end of the training
};

// Emitted once after each epoch, or after the validation at its end.
struct EpochEvent {
  int64_t epoch = 0;
  int64_t num_epochs = 0;
  int64_t step = 0;
  double lr = 0;
  Metrics train_metrics = {};  // means over the epoch
  double seconds = 0;          // of training, without validation
  double images_per_second = 0;
  std::optional<ValidationEvent> validation = {};
};

struct EndEvent {
  std::string reason = {};   // "done", "early" (by training.early_stopping), "stopped", "failed"
  std::string message = {};  // of the error that ended the run, or why the training ended early
  int64_t epoch = 0;
  int64_t step = 0;
  double seconds = 0;            // since the start of the training, with validations and checkpoints
  double images_per_second = 0;  // over the time of the training steps
  std::string monitor = {};      // as in StartEvent
  bool higher_is_better = false;
  std::optional<ValidationEvent> final_validation = {};
  std::optional<ValidationEvent> best_validation = {};
};

// Receives the events. The functions are called by the training thread, which waits for them. on_end is called at the end of the run, also
// after an error, and a second time if the first call threw. An exception ends the run with its message, and with its exit code if it is
// one of trainer/error.h. A resumed run makes a new sink and repeats the events after its checkpoint; only the program's own files are
// truncated to the checkpoint.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void on_start(const StartEvent&) {}
  virtual void on_train(const TrainEvent&) {}
  // Called after every step; if the step ends a logging interval, after on_train. `step_in_epoch` counts from 1.
  virtual void on_step(int64_t /*step_in_epoch*/, int64_t /*steps_per_epoch*/) {}
  // Called on the first rank after its first step, and when there was no event for several seconds, with the part of the logging interval
  // that has been trained: the metrics are those of this rank's images, and the interval's later on_train includes them.
  virtual void on_progress(const TrainEvent&) {}
  // Called after the batches of a validation, with the number of images that have been evaluated. Both numbers count an image twice if the
  // averaged parameters are validated too.
  virtual void on_validation_step(int64_t /*num_done*/, int64_t /*num_images*/) {}
  virtual void on_warning(const WarningEvent&) {}
  virtual void on_validation(const ValidationEvent&) {}
  virtual void on_epoch(const EpochEvent&) {}
  virtual void on_checkpoint(const CheckpointEvent&) {}
  virtual void on_histograms(const HistogramsEvent&) {}
  virtual void on_end(const EndEvent&) {}
};

// The information about the run that a sink receives when it is made.
struct SinkContext {
  std::filesystem::path run_dir;
  std::string config_text;               // the resolved experiment, in YAML
  std::vector<std::string> class_names;  // by label; empty: the classes have only numbers
};

// The sinks of logging.sinks.
using SinkRegistry = Registry<std::unique_ptr<Sink>, const SinkContext&>;
SinkRegistry& sink_registry();

}  // namespace trainer::reporting
