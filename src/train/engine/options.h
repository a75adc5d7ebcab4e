#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "trainer/options.h"

namespace trainer::engine {

struct Interval;

// How samples become batches and steps.
struct PlanOptions {
  // Of a rank in a micro-step, or of all ranks together in a step; neither: 128 of a rank.
  std::optional<int64_t> batch_size = {};
  std::optional<int64_t> global_batch_size = {};
  int64_t accumulation_steps = 1;
  bool drop_last = true;
  data::Shards shards = data::Shards::kPad;
  // Exactly one of them.
  std::optional<int64_t> epochs = {};
  std::optional<int64_t> steps = {};
};

// Which rank reads the samples of a rank, and how they reach it.
enum class Distribution { kLocal, kScatter, kBroadcast };

struct ValidationOptions {
  std::optional<int64_t> every_epochs = 1;
  std::optional<int64_t> every_steps = {};
  int64_t batch_size = 256;
  task::TestTimeAugmentation tta = task::TestTimeAugmentation::kNone;

  bool is_off() const { return !every_epochs && !every_steps; }
};

enum class MonitorMode { kAuto, kMax, kMin };

// What the best validation is chosen by.
struct MonitorOptions {
  std::string metric = "auto";  // "validation/top1"; auto: Task::default_metric()
  MonitorMode mode = MonitorMode::kAuto;
};

struct EarlyStoppingOptions {
  int64_t patience = 10;  // validations in a row that were not better
  double min_delta = 0;   // by which a better one differs at least, in the metric's own unit
};

// What follows a step whose loss or gradients are not finite: the run ends, or goes on up to ten times in a row.
enum class OnNonFinite { kStop, kSkip };

struct TrainerOptions {
  uint64_t seed = 42;
  std::optional<double> max_grad_norm = {};
  OnNonFinite on_non_finite = OnNonFinite::kStop;
  std::optional<EarlyStoppingOptions> early_stopping = {};
  ValidationOptions validation = {};
  MonitorOptions monitor = {};
  // Between two checkpoints.
  std::optional<int64_t> checkpoint_every_epochs = 1;
  std::optional<int64_t> checkpoint_every_steps = {};
  int64_t log_every_steps = 50;
  double straggler_ratio = 1.5;
  // What to advise after an epoch (`number`, from 0) that waited for data, as a warning; empty text: nothing.
  std::function<std::string(const Interval& epoch, int64_t number)> advise_on_data = {};
};

}  // namespace trainer::engine
