#pragma once
// What a network is trained to do: how a batch becomes outputs and a loss, what is measured, and which metric chooses the best checkpoint.

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "config/registry.h"
#include "models/model.h"
#include "nn/loss.h"
#include "reporting/metric.h"
#include "task/meters.h"

namespace trainer::task {

class Task {
 public:
  // The forward pass of a batch.
  struct Pass {
    torch::Tensor outputs;
    torch::Tensor loss;  // mean over the batch, a scalar; 0 for an empty batch
  };

  // What a configuration combines with the task.
  struct Setup {
    std::string loss;
    std::string dataset;
    int64_t num_classes = 0;  // of the data set; 0: its targets are floating-point vectors
    std::string monitor;      // "validation/loss", or "auto"
  };

  explicit Task(std::unique_ptr<nn::Loss> loss) : loss_(std::move(loss)) {}
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // `images` and `targets` on the model's device; autocast and modes are the caller's.
  virtual Pass forward(models::Model& model, const torch::Tensor& images, const torch::Tensor& targets) const;

  // The metrics of training and of validation, the loss first.
  virtual reporting::MetricColumns metrics() const = 0;
  // The validation metric that chooses the best checkpoint unless the configuration names another one.
  virtual std::string default_metric() const = 0;
  virtual TrainMeter make_train_meter(torch::Device device) const = 0;
  // `num_classes` as in Setup; `num_batches`: of the whole validation, on all ranks together.
  virtual std::unique_ptr<ValidationMeter> make_validation_meter(torch::Device device, int64_t num_classes, int64_t num_batches) const = 0;
  // Metrics of each class, from a validation's confusion matrix; empty without classes.
  virtual std::vector<reporting::ClassMetrics> per_class(const std::vector<int64_t>& /*confusion*/) const { return {}; }
  // Why this combination cannot be trained, one message for each reason ("checkpoint.monitor: …"); empty when it can.
  virtual std::vector<std::string> problems(const Setup& setup) const = 0;

 private:
  std::unique_ptr<nn::Loss> loss_;
};

// Classification for a loss whose targets are class labels, else regression.
std::unique_ptr<Task> make_task(std::unique_ptr<nn::Loss> loss);

// The metrics of all tasks, each once. Tables and checkpoints have these columns for every task, empty where a task lacks the metric.
reporting::MetricColumns all_metrics();
// What checkpoint.monitor may name: the validation metrics of all tasks.
config::MonitorChoices monitor_choices();

}  // namespace trainer::task
