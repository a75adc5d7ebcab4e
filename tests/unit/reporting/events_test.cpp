#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "reporting/sinks.h"
#include "trainer/error.h"

namespace trainer::reporting::test {
namespace {

class RecordingSink : public Sink {
 public:
  RecordingSink(std::string name, std::vector<std::string>& seen) : name_(std::move(name)), seen_(seen) {}
  void on_start(const StartEvent&) override { seen_.push_back(name_ + " start"); }
  void on_train(const TrainEvent&) override { seen_.push_back(name_ + " train"); }
  void on_step(int64_t step_in_epoch, int64_t steps_per_epoch) override {
    seen_.push_back(name_ + " step " + std::to_string(step_in_epoch) + "/" + std::to_string(steps_per_epoch));
  }
  void on_progress(const TrainEvent&) override { seen_.push_back(name_ + " progress"); }
  void on_validation_step(int64_t num_done, int64_t num_images) override {
    seen_.push_back(name_ + " validation step " + std::to_string(num_done) + "/" + std::to_string(num_images));
  }
  void on_warning(const WarningEvent&) override { seen_.push_back(name_ + " warning"); }
  void on_validation(const ValidationEvent&) override { seen_.push_back(name_ + " validation"); }
  void on_epoch(const EpochEvent&) override { seen_.push_back(name_ + " epoch"); }
  void on_checkpoint(const CheckpointEvent&) override { seen_.push_back(name_ + " checkpoint"); }
  void on_end(const EndEvent&) override { seen_.push_back(name_ + " end"); }

 private:
  std::string name_;
  std::vector<std::string>& seen_;
};

TEST(Reporter, SendsEveryEventToEverySinkInOrder) {
  std::vector<std::string> seen;
  Reporter reporter;
  reporter.add(std::make_unique<RecordingSink>("a", seen));
  reporter.add(std::make_unique<RecordingSink>("b", seen));
  reporter.on_start({});
  reporter.on_train({});
  reporter.on_step(3, 5);
  reporter.on_progress({});
  reporter.on_validation_step(6, 7);
  reporter.on_warning({});
  reporter.on_validation({});
  reporter.on_epoch({});
  reporter.on_checkpoint({});
  reporter.on_end({});
  EXPECT_EQ(seen, (std::vector<std::string>{"a start",
                                            "b start",
                                            "a train",
                                            "b train",
                                            "a step 3/5",
                                            "b step 3/5",
                                            "a progress",
                                            "b progress",
                                            "a validation step 6/7",
                                            "b validation step 6/7",
                                            "a warning",
                                            "b warning",
                                            "a validation",
                                            "b validation",
                                            "a epoch",
                                            "b epoch",
                                            "a checkpoint",
                                            "b checkpoint",
                                            "a end",
                                            "b end"}));
}

TEST(Reporter, PassesNothingOnWhenTheCheckFails) {
  std::vector<std::string> seen;
  bool fails = false;
  Reporter reporter([&] {
    if (fails) throw UsageError("another run has the folder");
  });
  reporter.add(std::make_unique<RecordingSink>("a", seen));
  const std::array<std::function<void()>, 7> events = {[&] { reporter.on_start({}); },   [&] { reporter.on_train({}); },
                                                       [&] { reporter.on_warning({}); }, [&] { reporter.on_validation({}); },
                                                       [&] { reporter.on_epoch({}); },   [&] { reporter.on_checkpoint({}); },
                                                       [&] { reporter.on_end({}); }};
  for (const auto& emit : events) emit();
  EXPECT_EQ(seen.size(), 7U);
  fails = true;
  for (const auto& emit : events) EXPECT_THROW(emit(), UsageError);
  EXPECT_EQ(seen.size(), 7U);
}

}  // namespace
}  // namespace trainer::reporting::test
