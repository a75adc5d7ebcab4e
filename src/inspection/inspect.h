#pragma once
// What can be known of a training before it starts, without its data and without a GPU.

#include <optional>
#include <string>
#include <vector>

#include "config/load.h"
#include "engine/plan.h"
#include "inspection/layer_table.h"
#include "inspection/memory.h"
#include "inspection/rank_plan.h"

namespace trainer::inspection {

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
