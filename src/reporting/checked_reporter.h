#pragma once

#include <functional>

#include "reporting/reporter.h"

namespace trainer::reporting {

// A Reporter that calls `check` before it passes an event to its sinks, except for on_step, which no file records. If `check` throws, no
// sink gets the event.
class CheckedReporter : public Reporter {
 public:
  explicit CheckedReporter(std::function<void()> check) : check_(std::move(check)) {}

  void on_start(const StartEvent& event) override {
    check_();
    Reporter::on_start(event);
  }
  void on_train(const TrainEvent& event) override {
    check_();
    Reporter::on_train(event);
  }
  void on_warning(const WarningEvent& event) override {
    check_();
    Reporter::on_warning(event);
  }
  void on_validation(const ValidationEvent& event) override {
    check_();
    Reporter::on_validation(event);
  }
  void on_epoch(const EpochEvent& event) override {
    check_();
    Reporter::on_epoch(event);
  }
  void on_checkpoint(const CheckpointEvent& event) override {
    check_();
    Reporter::on_checkpoint(event);
  }
  void on_histograms(const HistogramsEvent& event) override {
    check_();
    Reporter::on_histograms(event);
  }
  void on_end(const EndEvent& event) override {
    check_();
    Reporter::on_end(event);
  }

 private:
  std::function<void()> check_;
};

}  // namespace trainer::reporting
