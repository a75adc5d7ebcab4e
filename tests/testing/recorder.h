#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "trainer/events.h"

namespace trainer::testing {

// Stores every event of a run.
class Recorder : public reporting::Sink {
 public:
  void on_start(const reporting::StartEvent& event) override { start = event; }
  void on_train(const reporting::TrainEvent& event) override { train.push_back(event); }
  void on_progress(const reporting::TrainEvent& event) override { progress.push_back(event); }
  void on_validation_step(int64_t num_done, int64_t num_images) override { validation_steps.emplace_back(num_done, num_images); }
  void on_warning(const reporting::WarningEvent& event) override { warnings.push_back(event); }
  void on_validation(const reporting::ValidationEvent& event) override { validation.push_back(event); }
  void on_epoch(const reporting::EpochEvent& event) override { epochs.push_back(event); }
  void on_checkpoint(const reporting::CheckpointEvent& event) override { checkpoints.push_back(event); }
  void on_histograms(const reporting::HistogramsEvent& event) override { histograms.push_back(event); }
  void on_end(const reporting::EndEvent& event) override { end = event; }

  reporting::StartEvent start;
  std::vector<reporting::TrainEvent> train;
  std::vector<reporting::TrainEvent> progress;
  std::vector<std::pair<int64_t, int64_t>> validation_steps;
  std::vector<reporting::WarningEvent> warnings;
  std::vector<reporting::ValidationEvent> validation;
  std::vector<reporting::EpochEvent> epochs;
  std::vector<reporting::CheckpointEvent> checkpoints;
  std::vector<reporting::HistogramsEvent> histograms;
  reporting::EndEvent end;
};

}  // namespace trainer::testing
