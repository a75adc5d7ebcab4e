#pragma once
// Tasks: what a network is trained to do. A task interprets the targets of the samples, runs the forward pass with the loss, and measures
// metrics. Metrics are kept as sums on the network's device, so that only read() and state() wait for the device; read() adds the sums of
// all ranks and computes the means.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/component.h"
#include "trainer/dataset.h"
#include "trainer/distributed.h"
#include "trainer/error.h"
#include "trainer/events.h"
#include "trainer/inference.h"
#include "trainer/model.h"
#include "trainer/nn.h"
#include "trainer/options.h"
#include "trainer/state.h"
#include "trainer/torch.h"

namespace trainer::task {

reporting::MetricInfo loss_info();

// The mean of `count` samples; 0 if there are none.
inline double mean_of(double sum, double count) { return count == 0 ? 0 : sum / count; }

// The metrics of a number of samples.
struct Measurement {
  int64_t num_samples = 0;
  // The loss first. All are 0 if there are no samples.
  reporting::Metrics metrics = {{.info = loss_info()}};
  reporting::ClassResults classes = {};   // of a validation with classes
  reporting::LabelResults labels = {};    // of a multi-label validation
  reporting::NumberResults numbers = {};  // of a validation of a regression
};

// A sum over the samples of a batch, such as the number of correct ones: a scalar on the device of `outputs`. Both arguments are as in
// nn::Loss.
using SumOverSamples = std::function<torch::Tensor(const torch::Tensor& outputs, const torch::Tensor& targets)>;

// A metric that is a mean over the samples.
struct MeanMetric {
  reporting::MetricInfo info;
  SumOverSamples sum;
};

// The mean training loss and other metrics since the last reset().
class TrainMeter {
 public:
  // `weighs_samples`: from nn::Loss.
  TrainMeter(torch::Device device, std::vector<MeanMetric> metrics, bool weighs_samples = false);
  // `loss`: mean over the batch's `size` samples, a scalar tensor. `outputs` and `targets` as in nn::Loss. `weight`: as in Task::Pass. A
  // batch of size 0 adds nothing.
  void add(const torch::Tensor& loss, const torch::Tensor& outputs, const torch::Tensor& targets, int64_t size,
           const torch::Tensor& weight = {});
  // Collective: over all ranks of `group`. Waits for the device.
  Measurement read(const distributed::ProcessGroup& group) const;
  void reset();
  // rewind() removes the batches added since the last mark(); rewind_if() does so only if `condition`, a bool scalar on the device, is
  // true.
  void mark();
  void rewind();
  void rewind_if(const torch::Tensor& condition);
  // This rank's sums, float64 [num_sums()] copied to the CPU; waits for the device.
  state::Tree state() const;
  // Throws CheckpointError.
  void load_state(const state::View& view);
  int64_t num_sums() const { return sums_.numel(); }

 private:
  std::vector<MeanMetric> metrics_;
  bool weighs_samples_;
  torch::Tensor sums_;    // float64 on the device: loss, each other metric, sample weights if there are any, number of samples
  torch::Tensor marked_;  // their values at the last mark
};

// A batch of a validation.
struct EvaluatedBatch {
  int64_t number = 0;  // of the batch in the validation
  // The index of each of its samples in the validation set, in ascending order; those of skipped samples are missing. Empty: not known.
  std::vector<int64_t> samples = {};
  int64_t size = 0;
  torch::Tensor weight = {};  // as in Task::Pass
};

// The metrics of a validation in which each batch is evaluated by one rank. The results are the same to the last digit for any number of
// ranks: counts are integers, and the losses of the batches are added in the order of the batches. This class measures the loss; a task
// derives from it to measure more.
class ValidationMeter {
 public:
  // `num_batches`: of all ranks together.
  ValidationMeter(torch::Device device, int64_t num_batches);
  virtual ~ValidationMeter() = default;
  ValidationMeter(const ValidationMeter&) = delete;
  ValidationMeter& operator=(const ValidationMeter&) = delete;
  // Like TrainMeter::add. The memory of `targets` is used for another batch after the call: clone what is kept.
  virtual void add(const EvaluatedBatch& batch, const torch::Tensor& loss, const torch::Tensor& outputs, const torch::Tensor& targets);
  // Collective over all ranks of `group`; to be called once. Waits for the device.
  virtual Measurement read(const distributed::ProcessGroup& group);

 private:
  torch::Tensor sums_;  // float64 [2 * num_batches + 1]: the sum of losses of each batch, the weight of each, and the number of samples
};

class Task {
 public:
  // The forward pass of a batch.
  struct Pass {
    torch::Tensor outputs;
    torch::Tensor loss;  // mean over the batch, a scalar; 0 for an empty batch
    // For a loss that weights samples: the sum of their weights, a scalar; otherwise undefined.
    torch::Tensor weight = {};
  };

  // The parts of a configuration that must fit the task.
  struct Setup {
    std::string loss;
    std::string dataset;
    int64_t num_classes = 0;      // of the data set; 0: the targets are floating-point vectors
    bool has_masks = false;       // of the data set
    bool is_multi_label = false;  // of the data set
    std::string monitor;          // such as "validation/loss", or "auto"
  };

  // A reason why a setup cannot be trained.
  struct Mismatch {
    std::string key;   // such as "checkpoint.monitor"
    std::string text;  // the problem
    bool operator==(const Mismatch&) const = default;
  };

  // `loss` may be null if only names and metrics are needed.
  explicit Task(std::unique_ptr<nn::Loss> loss) : loss_(std::move(loss)) {}
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // `images` and `targets` are on the model's device. On a GPU, later images are copied to the memory of `images`: clone what must be kept
  // after the call. The caller sets autocast and train or eval mode.
  virtual Pass forward(models::Model& model, const torch::Tensor& images, const torch::Tensor& targets) const;
  // The same for a validation batch, with outputs [N, K] averaged over the views of `tta` (average_over_views). A task must override both
  // or neither.
  virtual Pass evaluate(models::Model& model, const torch::Tensor& images, const torch::Tensor& targets, TestTimeAugmentation tta) const;

  // The metrics without the loss, which is always measured and comes first. Names consist of lower-case letters, digits and underscores.
  // Names and formats must not depend on the task's options.
  virtual std::vector<MeanMetric> train_metrics() const { return {}; }
  virtual std::vector<reporting::MetricInfo> validation_metrics() const { return {}; }
  // The name of the validation metric that chooses the best checkpoint if checkpoint.monitor is `auto`.
  virtual std::string default_metric() const { return loss_info().name; }
  // `num_outputs`: the number of classes, or without classes the length of a target; `num_batches`: of the whole validation, on all ranks
  // together.
  virtual std::unique_ptr<ValidationMeter> make_validation_meter(torch::Device device, int64_t num_outputs, int64_t num_batches) const;
  // Empty if the setup can be trained.
  virtual std::vector<Mismatch> mismatches(const Setup& setup) const = 0;
  // Whether the task or its loss depends on statistics of the training targets and needs set_target_summary() before its first pass. Not
  // supported for masks. Checkpoints contain the summary; programs that predict numbers multiply the outputs by its deviation and add its
  // mean.
  virtual bool needs_target_summary() const { return loss_ != nullptr && loss_->needs_class_counts(); }
  // Returns a text for the log, which may be empty. `summary` is nullopt if the targets are not to be normalised.
  virtual std::string set_target_summary(const std::optional<data::TargetSummary>& summary);
  const std::optional<data::TargetSummary>& target_summary() const { return target_summary_; }

  TrainMeter make_train_meter(torch::Device device) const { return {device, train_metrics(), weighs_samples()}; }
  // Whether the passes have a weight.
  bool weighs_samples() const { return loss_ != nullptr && loss_->weighs_samples(); }
  // The result of nn::Loss::refusal_of_classes() with the key that sets the class weights.
  std::optional<Mismatch> refusal_of_classes(int64_t num_classes) const;
  // All metrics, the loss first.
  reporting::MetricColumns metrics() const;

 protected:
  // Returns `outputs` with the experiment's loss, which is 0 for an empty batch.
  virtual Pass with_loss(torch::Tensor outputs, const torch::Tensor& targets) const;

 private:
  std::unique_ptr<nn::Loss> loss_;
  std::optional<data::TargetSummary> target_summary_;
};

// A task is made with the loss of the experiment, or, if only its metrics are needed, with null and default options. The factory throws
// UsageError for an unsuitable loss.
using TaskRegistry = Registry<std::unique_ptr<Task>, std::unique_ptr<nn::Loss>>;
TaskRegistry& task_registry();

// A validation metric of the task classification. Set exactly one of `count` and `from_confusion`. The arguments of `count` are outputs
// [N, classes] and targets int64 [N].
struct ClassMetric {
  reporting::MetricInfo info;
  int64_t min_classes = 1;  // the metric does not exist for data sets with fewer classes
  // If set, counts samples, as an integer; the metric is their fraction.
  SumOverSamples count = {};
  // If set, computes the metric from the number of samples of each actual and predicted class: int64 [actual][predicted] on the CPU.
  std::function<double(const torch::Tensor& confusion)> from_confusion = {};
};

// Throws std::logic_error if a metric of this name exists, the name is invalid, or not exactly one of the functions is set.
void add_class_metric(ClassMetric metric);

}  // namespace trainer::task
