#pragma once
// What a network is trained to do: its forward pass and loss, the metrics, and which of them chooses the best checkpoint.

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "task/meters.h"
#include "task/options.h"
#include "trainer/events.h"
#include "trainer/model.h"
#include "trainer/nn.h"

namespace trainer::task {

class Task {
 public:
  // The forward pass of a batch.
  struct Pass {
    torch::Tensor outputs;
    torch::Tensor loss;  // mean over the batch, a scalar; 0 for an empty batch
  };

  // The parts of a configuration that must fit the task.
  struct Setup {
    std::string loss;
    std::string dataset;
    int64_t num_classes = 0;  // of the data set; 0: the targets are floating-point vectors
    std::string monitor;      // "validation/loss", or "auto"
  };

  // A reason why a setup cannot be trained.
  struct Mismatch {
    std::string key;   // "checkpoint.monitor"
    std::string text;  // what is wrong with it
    bool operator==(const Mismatch&) const = default;
  };

  explicit Task(std::unique_ptr<nn::Loss> loss) : loss_(std::move(loss)) {}
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // `images` and `targets` are on the model's device. The caller sets autocast and train or eval mode.
  virtual Pass forward(models::Model& model, const torch::Tensor& images, const torch::Tensor& targets) const;
  // The same of a validation batch, with outputs averaged over the views of `tta` (views.h). A task overrides both or neither.
  virtual Pass evaluate(models::Model& model, const torch::Tensor& images, const torch::Tensor& targets, TestTimeAugmentation tta) const;

  // The metrics of training and of validation, the loss first.
  virtual reporting::MetricColumns metrics() const = 0;
  // The name of the validation metric that chooses the best checkpoint if checkpoint.monitor is `auto`.
  virtual std::string default_metric() const = 0;
  virtual TrainMeter make_train_meter(torch::Device device) const = 0;
  // `num_classes` as in Setup; `num_batches`: of the whole validation, on all ranks together.
  virtual std::unique_ptr<ValidationMeter> make_validation_meter(torch::Device device, int64_t num_classes, int64_t num_batches) const = 0;
  // Metrics of each class, from a validation's confusion matrix; empty without classes.
  virtual std::vector<reporting::ClassMetrics> per_class(const std::vector<int64_t>& /*confusion*/) const { return {}; }
  // Empty if the setup can be trained.
  virtual std::vector<Mismatch> mismatches(const Setup& setup) const = 0;

 private:
  Pass with_loss(torch::Tensor outputs, const torch::Tensor& targets) const;

  std::unique_ptr<nn::Loss> loss_;
};

// Targets are floating-point vectors; the loss is the only metric.
std::unique_ptr<Task> make_regression(std::unique_ptr<nn::Loss> loss);
// Classification if the targets of the loss are class labels, else regression.
std::unique_ptr<Task> make_task(std::unique_ptr<nn::Loss> loss);

// The metrics of all tasks, each once. Tables and checkpoints have these columns for every task, empty if the task lacks the metric.
reporting::MetricColumns all_metrics();
// Of all tasks.
MonitorChoices monitor_choices();

}  // namespace trainer::task
