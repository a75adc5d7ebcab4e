#pragma once
// Examines a run before it starts, without its data or a GPU. Also makes the tables of a network's layers and of a profile's operations.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/load.h"
#include "run/inspection/memory.h"
#include "train/engine/plan.h"
#include "trainer/model.h"

namespace trainer::inspection {

// The layers of a network: their outputs, parameters and costs.

struct LayerRow {
  std::string name;                   // such as "layer1.0.conv1"
  std::string kind;                   // such as "Conv2d"
  std::vector<int64_t> output_shape;  // of one sample
  int64_t num_parameters = 0;         // 0 if the layer was applied before
  bool is_frozen = false;             // whether it has parameters and none of them is trained
  int64_t flops = 0;                  // of one sample
};

struct LayerTable {
  std::vector<LayerRow> rows;  // in the order in which they are applied
  int64_t num_parameters = 0;  // of the whole network, including those that belong to no row
  int64_t num_trained = 0;     // of these, not frozen
  int64_t flops = 0;
};

// Applies `model` to `sample` [1, …] in eval mode, and leaves it in train mode. The rows are the layers of src/nn. FLOPs are those of the
// forward pass, counted as by torch.utils.flop_counter: two for each multiply-accumulate of a convolution, a linear layer or attention;
// other layers, biases and activations count as 0.
LayerTable make_layer_table(models::Model& model, const torch::Tensor& sample);

// The costs of operations, from the events of a profile.

// An operation that a CPU thread ran, or a kernel that a GPU ran. Operations of a thread follow each other or are nested.
struct ProfiledEvent {
  std::string name = {};
  uint64_t thread = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  bool is_on_gpu = false;
  uint64_t id = 0;      // of an operation
  uint64_t caller = 0;  // for a kernel or a driver call: the id of the operation that it belongs to; 0: none
};

struct OperationCost {
  std::string name = {};
  int64_t num_calls = 0;
  int64_t cpu_ns = 0;  // without the operations within it
  int64_t gpu_ns = 0;  // of the kernels that it started itself
};

// The costs by name, with the largest cpu_ns first. The numbers are self_cpu_time_total and self_device_time_total of torch.profiler's
// key_averages(). All steps ("ProfilerStep#7") form one entry, kOutside.
std::vector<OperationCost> sum_costs(std::vector<ProfiledEvent> events);

// The time of the steps outside of operations: waiting for data, for other ranks and for the backward pass on a GPU, and code that the
// profiler does not record.
inline constexpr const char* kOutside = "(outside of operations)";
// The prefix of the names of steps, as in torch.profiler.
inline constexpr const char* kStepPrefix = "ProfilerStep#";

// A table of the `count` operations with the most CPU time: a line of titles, then one line for each. Names are cut at 60 characters.
std::vector<std::string> to_lines(const std::vector<OperationCost>& costs, size_t count);

// The output of `trainer validate`.

struct LrPoint {
  int64_t step = 0;
  double lr = 0;
};

struct Inspection {
  std::vector<std::string> problems;  // the errors that training would report, as far as they can be found beforehand
  std::vector<std::string> warnings;
  std::vector<std::string> notes;  // what was skipped or assumed, and why
  // This member and those below are valid only if there are no problems; those that need missing data are empty.
  config::Experiment experiment;
  std::vector<int64_t> sample_shape;  // of a transformed training sample
  std::optional<LayerTable> layers;
  int64_t batch_size = 0;         // of the largest micro-step on one rank
  int64_t global_batch_size = 0;  // of a step
  std::optional<engine::Plan> plan;
  int64_t num_repeated = 0;       // of `plan`: samples that are trained on twice in an epoch, so that all ranks have the same number
  int64_t num_skipped = 0;        // of `plan`: samples that no rank takes in an epoch
  std::vector<LrPoint> lr_curve;  // at most 400
  // The times of steps of global_batch_size samples on all available cores, without loading; not set for a GPU.
  std::optional<StepTime> step_time;
  std::optional<double> step_seconds;
  std::optional<double> frozen_step_seconds;  // before training.unfreeze_after
  std::optional<double> features_seconds;     // of the pass over all samples that computes their features (training.cache_features)
  std::optional<double> training_seconds;     // of all steps, and of this pass
  std::optional<MemoryEstimate> memory;
  bool memory_is_of_gpu = false;
};

// `world_size`: number of ranks, which are assumed to run on this host. Opens the data only if its files exist, and downloads nothing. If
// there are no problems, measures the time and memory of steps; calls `before_measuring`, which may be empty, before.
Inspection inspect(const config::ExperimentSource& source, int world_size, const std::function<void()>& before_measuring = {});

}  // namespace trainer::inspection
