#pragma once
// What can be known of a training before it starts, without its data and without a GPU, and the table of its layers.

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/load.h"
#include "run/inspection/memory.h"
#include "train/engine/plan.h"
#include "trainer/model.h"

namespace trainer::inspection {

// The layers of a network: what they give, learn and cost.

struct LayerRow {
  std::string name;                   // "layer1.0.conv1"
  std::string kind;                   // "Conv2d"
  std::vector<int64_t> output_shape;  // of one sample
  int64_t num_parameters = 0;         // 0 where the layer is applied again
  bool is_frozen = false;             // it has parameters, and none of them is trained
  int64_t flops = 0;                  // of one sample
};

struct LayerTable {
  std::vector<LayerRow> rows;  // in the order in which they are applied
  int64_t num_parameters = 0;  // of the whole network, with those that belong to no row
  int64_t num_trained = 0;     // of these, without frozen ones
  int64_t flops = 0;
};

// Applies `model` to `sample` [1, …], in evaluation, and leaves it in training mode. The rows are the layers of src/nn. FLOPs are those of
// the forward pass: two for each multiply-accumulate of a convolution or linear layer, as torch.utils.flop_counter counts; other layers,
// biases and activations count as 0.
LayerTable make_layer_table(models::Model& model, const torch::Tensor& sample);

// What operations cost, from the events of a profile.

// An operation that a thread of the CPU ran, or a kernel that a GPU ran. Operations of a thread lie one after the other or one within the
// other.
struct ProfiledEvent {
  std::string name = {};
  uint64_t thread = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  bool is_on_gpu = false;
  uint64_t id = 0;      // of an operation
  uint64_t caller = 0;  // of a kernel, and of a call of the driver: the id of the operation that it belongs to; 0: none
};

struct OperationCost {
  std::string name = {};
  int64_t num_calls = 0;
  int64_t cpu_ns = 0;  // without the operations within it
  int64_t gpu_ns = 0;  // of the kernels that it started itself
};

// By name, with the largest cpu_ns first: the numbers of torch.profiler's key_averages(), self_cpu_time_total and
// self_device_time_total. Steps ("ProfilerStep#7") are one entry, kOutside.
std::vector<OperationCost> sum_costs(std::vector<ProfiledEvent> events);

// The time of the steps that is in no operation: waiting for data, for other ranks and for the backward pass of a GPU, and code that does
// not tell the profiler.
inline constexpr const char* kOutside = "(outside of operations)";
// What the names of steps begin with, as torch.profiler names them.
inline constexpr const char* kStepPrefix = "ProfilerStep#";

// A table of the `count` operations with the most time on the CPU, a line each, after a line of titles. Names are cut at 60 characters.
std::vector<std::string> to_lines(const std::vector<OperationCost>& costs, size_t count);

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

// What `trainer validate` shows.

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
