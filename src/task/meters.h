#pragma once
// Sums of a training interval or a validation, on the device: only read() and state() wait for it. Sums are added over the ranks; means are
// computed from the total.

#include <torch/torch.h>

#include <functional>
#include <optional>
#include <vector>

#include "trainer/distributed.h"
#include "trainer/events.h"
#include "trainer/state.h"

namespace trainer::task {

reporting::MetricInfo loss_info();

// The mean of `count` samples; 0 when there are none.
inline double mean_of(double sum, double count) { return count == 0 ? 0 : sum / count; }

// The metrics of a number of samples.
struct Measurement {
  int64_t num_samples = 0;
  // The loss first. All are 0 if there are no samples.
  reporting::Metrics metrics = {{.info = loss_info()}};
  reporting::ClassResults classes = {};  // of a validation with classes
};

// The number of samples of a batch that count for a metric: an integer scalar on the device of `outputs` [N, K] and `targets`, int64 [N].
using CountHits = std::function<torch::Tensor(const torch::Tensor& outputs, const torch::Tensor& targets)>;

// A metric that is a fraction of the samples.
struct HitMetric {
  reporting::MetricInfo info;
  CountHits count;
};

// The mean training loss and other metrics since the last reset().
class TrainMeter {
 public:
  TrainMeter(torch::Device device, std::vector<HitMetric> metrics);
  // `loss`: mean over the batch's `size` samples, a scalar tensor. `outputs` and `targets` as in nn::Loss; metrics
  // count the most probable class as the sample's label. A batch of size 0 adds nothing.
  void add(const torch::Tensor& loss, const torch::Tensor& outputs, const torch::Tensor& targets, int64_t size);
  // Collective: over all ranks of `group`. Waits for the device.
  Measurement read(const distributed::ProcessGroup& group) const;
  void reset();
  // rewind() removes what was added since the last mark(); rewind_if() only if `condition`, a bool scalar on the device, is true.
  void mark();
  void rewind();
  void rewind_if(const torch::Tensor& condition);
  // This rank's sums, float64 [num_sums()] copied to the CPU; waits for the device.
  state::Tree state() const;
  // Throws CheckpointError.
  void load_state(const state::View& view);
  int64_t num_sums() const { return sums_.numel(); }

 private:
  std::vector<HitMetric> metrics_;
  torch::Tensor sums_;    // float64 on the device: loss, a column for each other metric of any task, samples
  torch::Tensor marked_;  // their values at the last mark
};

// A batch of a validation.
struct EvaluatedBatch {
  int64_t number = 0;  // in the validation
  // The index of its first sample, which the others follow; empty if some were left out.
  std::optional<int64_t> first_sample = {};
  int64_t size = 0;
};

// For a validation in which each batch is evaluated by one rank. The results are the same to the last digit for any number of ranks: counts
// are integers, and the losses of the batches are added in the order of the batches. This class measures the loss.
class ValidationMeter {
 public:
  // `num_batches`: of all ranks together.
  ValidationMeter(torch::Device device, int64_t num_batches);
  virtual ~ValidationMeter() = default;
  ValidationMeter(const ValidationMeter&) = delete;
  ValidationMeter& operator=(const ValidationMeter&) = delete;
  // Like TrainMeter::add.
  virtual void add(const EvaluatedBatch& batch, const torch::Tensor& loss, const torch::Tensor& outputs, const torch::Tensor& targets);
  // Collective: over all ranks of `group`, once. Waits for the device.
  virtual Measurement read(const distributed::ProcessGroup& group);

 private:
  torch::Tensor sums_;  // float64 [num_batches + 1]: the sum of losses of each batch, and the number of samples
};

}  // namespace trainer::task
