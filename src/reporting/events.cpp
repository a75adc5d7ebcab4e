#include "reporting/events.h"

namespace trainer::reporting {

void Reporter::on_start(const StartEvent& event) {
  for (const auto& sink : sinks_) sink->on_start(event);
}

void Reporter::on_train(const TrainEvent& event) {
  for (const auto& sink : sinks_) sink->on_train(event);
}

void Reporter::on_step(int64_t step_in_epoch, int64_t steps_per_epoch) {
  for (const auto& sink : sinks_) sink->on_step(step_in_epoch, steps_per_epoch);
}

void Reporter::on_warning(const WarningEvent& event) {
  for (const auto& sink : sinks_) sink->on_warning(event);
}

void Reporter::on_validation(const ValidationEvent& event) {
  for (const auto& sink : sinks_) sink->on_validation(event);
}

void Reporter::on_epoch(const EpochEvent& event) {
  for (const auto& sink : sinks_) sink->on_epoch(event);
}

void Reporter::on_checkpoint(const CheckpointEvent& event) {
  for (const auto& sink : sinks_) sink->on_checkpoint(event);
}

void Reporter::on_end(const EndEvent& event) {
  for (const auto& sink : sinks_) sink->on_end(event);
}

}  // namespace trainer::reporting
