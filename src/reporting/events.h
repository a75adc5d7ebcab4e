#pragma once
// The events of a run and the sinks that receive them. The engine fills events; each sink writes them in its own format. Every member
// has a default, so an event can be constructed from the members that it has.
//
// `step` is the number of updates attempted since the beginning of the run, and `epoch`, from 0, the epoch of the latest, in all events but
// Resume. Files write these numbers; the console counts epochs from 1, as in "epoch 3/100".

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reporting/class_results.h"
#include "reporting/histogram.h"
#include "reporting/metric.h"

namespace trainer::reporting {

// A checkpoint is on the disk.
struct CheckpointEvent {
  int64_t epoch = 0;  // of the file's step
  int64_t step = 0;   // that the file holds
  std::string file = {};
  uint64_t num_bytes = 0;
  double pause_seconds = 0;               // how long training was blocked
  double seconds = 0;                     // of writing, while training continued
  std::vector<std::string> removed = {};  // the files of older checkpoints that were removed after that
};

// Where a resumed run continues.
struct Resume {
  std::string checkpoint = {};  // its file
  int64_t epoch = 0;            // the epoch of the next step
  int64_t step = 0;
  // Of the file, if it is among those that this run saves, with durations that are not known any more (NaN).
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
  std::string monitor = {};  // the metric that selects the best validation: "validation/loss"
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
  double data_wait = 0;    // fraction of the interval's time
  double queue_depth = 0;  // batches that were ready when one was taken, on average
  uint64_t memory_bytes = 0;
  std::optional<double> grad_scale = {};      // under float16
  std::optional<int64_t> skipped_steps = {};  // updates that the GradScaler has skipped so far
  double eta_seconds = 0;                     // to the end of training
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
  Metrics ema_metrics = {};  // with the averaged parameters, if the run has them; written as ema_<name>
  double seconds = 0;
  bool is_best = false;          // better than every validation of the run before it
  bool is_within_epoch = false;  // neither after the last step of an epoch nor at the end of the training
};

// Emitted once after each epoch and its validation, if there was one.
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
  double seconds = 0;
  double images_per_second = 0;  // over the whole training time
  std::string monitor = {};      // as in StartEvent
  bool higher_is_better = false;
  std::optional<ValidationEvent> final_validation = {};
  std::vector<ClassMetrics> final_classes = {};  // of the final validation, for each class
  std::optional<ValidationEvent> best_validation = {};
};

class Sink {
 public:
  virtual ~Sink() = default;
  virtual void on_start(const StartEvent&) {}
  virtual void on_train(const TrainEvent&) {}
  // Called after every step, and after on_train if the step ends a logging interval. `step_in_epoch` from 1.
  virtual void on_step(int64_t /*step_in_epoch*/, int64_t /*steps_per_epoch*/) {}
  virtual void on_warning(const WarningEvent&) {}
  virtual void on_validation(const ValidationEvent&) {}
  virtual void on_epoch(const EpochEvent&) {}
  virtual void on_checkpoint(const CheckpointEvent&) {}
  virtual void on_histograms(const HistogramsEvent&) {}
  virtual void on_end(const EndEvent&) {}
};

}  // namespace trainer::reporting
