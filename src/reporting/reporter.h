#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "trainer/events.h"

namespace trainer::reporting {

// Passes every event to every sink, in the order in which the sinks were added.
class Reporter : public Sink {
 public:
  void add(std::unique_ptr<Sink> sink) { sinks_.push_back(std::move(sink)); }
  void on_start(const StartEvent& event) override { pass(&Sink::on_start, event); }
  void on_train(const TrainEvent& event) override { pass(&Sink::on_train, event); }
  void on_step(int64_t step_in_epoch, int64_t steps_per_epoch) override { pass(&Sink::on_step, step_in_epoch, steps_per_epoch); }
  void on_warning(const WarningEvent& event) override { pass(&Sink::on_warning, event); }
  void on_validation(const ValidationEvent& event) override { pass(&Sink::on_validation, event); }
  void on_epoch(const EpochEvent& event) override { pass(&Sink::on_epoch, event); }
  void on_checkpoint(const CheckpointEvent& event) override { pass(&Sink::on_checkpoint, event); }
  void on_histograms(const HistogramsEvent& event) override { pass(&Sink::on_histograms, event); }
  void on_end(const EndEvent& event) override { pass(&Sink::on_end, event); }

 private:
  template <class Handler, class... Args>
  void pass(Handler on_event, const Args&... args) const {
    for (const auto& sink : sinks_) (sink.get()->*on_event)(args...);
  }

  std::vector<std::unique_ptr<Sink>> sinks_;
};

}  // namespace trainer::reporting
