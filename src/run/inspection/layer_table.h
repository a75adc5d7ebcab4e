#pragma once
// The layers of a network: what they give, learn and cost.

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/model.h"

namespace trainer::inspection {

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

}  // namespace trainer::inspection
