#include "task/regression.h"

#include <fmt/format.h>

namespace trainer::task {
namespace {

class Regression : public Task {
 public:
  using Task::Task;

  reporting::MetricColumns metrics() const override { return {.train = {loss_info()}, .validation = {loss_info()}}; }
  std::string default_metric() const override { return loss_info().name; }
  TrainMeter make_train_meter(torch::Device device) const override { return {device, {}}; }

  std::unique_ptr<ValidationMeter> make_validation_meter(torch::Device device, int64_t /*num_classes*/,
                                                         int64_t num_batches) const override {
    return std::make_unique<ValidationMeter>(device, num_batches);
  }

  std::vector<std::string> problems(const Setup& setup) const override {
    std::vector<std::string> found;
    if (setup.num_classes > 0) {
      found.push_back(fmt::format("loss.name: {} needs floating-point targets, but {} gives class labels", setup.loss, setup.dataset));
    }
    if (setup.monitor != "auto" && setup.monitor != "validation/" + default_metric()) {
      found.push_back(
          fmt::format("checkpoint.monitor: {} has no classes to be right about; choose validation/{}", setup.loss, default_metric()));
    }
    return found;
  }
};

}  // namespace

std::unique_ptr<Task> make_regression(std::unique_ptr<nn::Loss> loss) { return std::make_unique<Regression>(std::move(loss)); }

}  // namespace trainer::task
