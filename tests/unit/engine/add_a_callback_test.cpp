// The example of docs/extending.md, section "Add a callback", and the order in which hooks are called.

#include <gmock/gmock.h>

#include <cmath>

#include "tests/testing/example.h"
#include "tests/testing/small_run.h"

namespace trainer::engine {
namespace {

// A run of six steps.
const std::string kCallbackText =
    "experiment: callback\nmodel: {name: demo_linear}\nloss: {name: mse}\n"
    "dataset: {name: synthetic, shape: [10], num_classes: 0, num_targets: 10, num_train: 24, num_validation: 8}\n"
    "dataloader: {batch_size: 8}\noptimizer: {name: sgd, lr: 0.01}\nruntime: {device: cpu}\ntraining: {epochs: 2}\n"
    "logging: {every_steps: 2}\n";

// Example: callback
// Logs each step that moves the parameters further than all steps before it (2-norm over all parameters).
class LargestStep : public engine::TrainingHook {
 public:
  LargestStep(const models::Model& model, Logger& logger) : parameters_(model.parameters()), logger_(logger) {}

  void before_step(int64_t) override {
    before_.clear();
    for (const auto& parameter : parameters_) before_.push_back(parameter.detach().clone());
  }

  void after_step(int64_t step) override {
    double squares = 0;
    for (size_t i = 0; i < before_.size(); ++i) squares += (parameters_[i].detach() - before_[i]).square().sum().item<double>();
    if (std::sqrt(squares) <= largest_) return;
    largest_ = std::sqrt(squares);
    logger_.info("step {} moved the parameters by {:.4g}, the most so far", step, largest_);
  }

  double largest() const { return largest_; }

 private:
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> before_;
  Logger& logger_;
  double largest_ = 0;
};
// End of example

TEST(AddACallback, ExampleIsCalledAtEachStep) {
  testing::SmallSession small(kCallbackText);
  auto& session = small.session;
  auto& context = small.context;
  testing::Recorder reporter;
  const auto should_stop = [] { return false; };
  // clang-format off
// Example: callback attached
LargestStep largest_step(*session.parts().network.model, context.logger());
const bool done = session.train(reporter, should_stop, {&largest_step});
// End of example
  // clang-format on
  EXPECT_TRUE(done);
  EXPECT_GT(largest_step.largest(), 0);
}

class CallOrder : public TrainingHook, public reporting::Sink {
 public:
  void before_step(int64_t step) override { calls.push_back("before " + std::to_string(step)); }
  bool needs_gradients(int64_t) const override { return true; }
  void on_gradients(int64_t step) override { calls.push_back("gradients " + std::to_string(step)); }
  void after_step(int64_t step) override { calls.push_back("after " + std::to_string(step)); }
  void on_train(const reporting::TrainEvent&) override { calls.emplace_back("report"); }
  void on_validation(const reporting::ValidationEvent&) override { calls.emplace_back("validation"); }

  std::vector<std::string> calls;
};

TEST(TrainingHook, IsCalledAroundEachStepAndAfterItsReport) {
  CallOrder order;
  testing::SmallSession small(kCallbackText);
  small.session.train(order, [] { return false; }, {&order});
  EXPECT_THAT(order.calls,
              ::testing::ElementsAre("before 0", "gradients 0", "after 0", "before 1", "gradients 1", "report", "after 1", "before 2",
                                     "gradients 2", "report", "after 2", "validation", "before 3", "gradients 3", "after 3", "before 4",
                                     "gradients 4", "report", "after 4", "before 5", "gradients 5", "report", "after 5", "validation"));
}

TEST(AddACallback, ExampleEqualsTheCodeInTheDocs) {
  for (const char* name : {"callback", "callback attached"}) {
    EXPECT_THAT(testing::extending_page(), ::testing::HasSubstr(testing::example_in("tests/unit/engine/add_a_callback_test.cpp", name)));
  }
}

}  // namespace
}  // namespace trainer::engine
