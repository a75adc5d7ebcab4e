#pragma once
// What can be known of a training before it starts, without its data and without a GPU.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/load.h"
#include "run/inspection/layer_table.h"
#include "run/inspection/memory.h"
#include "train/engine/plan.h"

namespace trainer::inspection {

// Which samples and batches of an epoch each rank takes.

// Consecutive batches of the same size.
struct BatchRun {
  int64_t count = 0;
  int64_t size = 0;  // samples
  bool operator==(const BatchRun&) const = default;
};

// Consecutive ranks that take batches of the same sizes.
struct RankGroup {
  int first_rank = 0;
  int last_rank = 0;
  int64_t num_samples = 0;        // of each of these ranks
  std::vector<BatchRun> batches;  // of each of them, in order
  bool operator==(const RankGroup&) const = default;
};

// The first epoch. Rank r takes every world_size-th position of the order that all ranks share, from position r on.
struct RankPlan {
  std::vector<RankGroup> groups;
  int64_t num_repeated = 0;  // samples that are taken a second time, to make the parts equal
  int64_t num_left_out = 0;  // samples that no rank takes
};

RankPlan make_rank_plan(const engine::Plan& plan);

struct LrPoint {
  int64_t step = 0;
  double lr = 0;
};

struct Inspection {
  std::vector<std::string> problems;  // training would refuse these; all that could be found
  std::vector<std::string> warnings;
  std::vector<std::string> notes;     // what is left out or assumed, and why
  config::Experiment experiment;      // valid without problems; so are the members below, which are empty where data would be needed
  std::vector<int64_t> sample_shape;  // of a transformed training sample
  std::optional<LayerTable> layers;
  int64_t batch_size = 0;         // of a micro-step on one rank, at most
  int64_t global_batch_size = 0;  // of a step
  std::optional<engine::Plan> plan;
  std::optional<RankPlan> ranks;
  std::vector<LrPoint> lr_curve;  // at most `num_lr_points`
  std::optional<StepTime> step_time;
  std::optional<double> step_seconds;  // of global_batch_size samples on all cores of this host that the process may use, without reading
                                       // the data; not for a GPU
  std::optional<MemoryEstimate> memory;
  bool memory_is_of_gpu = false;
};

// `world_size`: ranks, which are taken to share this host. Opens data only if its files are there, and downloads nothing.
Inspection inspect(const config::ExperimentSource& source, int world_size, int64_t num_lr_points = 400);

}  // namespace trainer::inspection
