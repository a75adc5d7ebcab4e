#pragma once
// Whole runs inside a test: from the text of an experiment file to the trained parts.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/saver.h"
#include "checkpoint/torch_zip.h"
#include "config/load.h"
#include "device/placement.h"
#include "engine/registries.h"
#include "engine/trainer.h"
#include "tests/testing/recorder.h"

namespace trainer::testing {

struct SmallRun {
  config::Experiment experiment;
  engine::Parts parts;
  Recorder events;
  bool done = false;
};

// Trains on the CPU until the end or until `max_steps` steps are done. Collective over `ranks`. With a `folder` it goes on from the newest
// checkpoint there, if there is one, and saves there.
inline SmallRun train(config::Experiment experiment, int64_t max_steps = -1, const engine::Ranks& ranks = {},
                      const std::filesystem::path& folder = {}) {
  SmallRun run{.experiment = std::move(experiment), .parts = {}, .events = {}};
  run.experiment.runtime.device = config::DeviceChoice::kCpu;
  const auto placement =
      device::choose_placement(run.experiment.runtime, run.experiment.amp, run.experiment.dataloader.pin_memory, {.num_cpus = 2}, nullptr);
  device::apply_placement(placement, run.experiment.runtime);
  const auto logger = make_quiet_logger();
  run.parts = engine::build_parts(run.experiment, placement, ranks);
  engine::join_ranks(run.experiment, run.parts);
  engine::open_data(run.experiment, run.parts, *logger);
  std::optional<checkpoint::Saver> saver;
  engine::Keeping keeping;
  const auto checkpoints = checkpoint::list_checkpoints(folder);
  ranks.world->barrier();
  if (!folder.empty() && ranks.world->rank() == 0) {
    saver.emplace(checkpoint::Store(folder, run.experiment.checkpoint.keep_last), /*pin_memory=*/false);
    keeping.checkpoints.saver = &*saver;
  }
  int64_t asked = 0;
  engine::Trainer trainer(
      run.experiment, run.parts, run.events, [&] { return max_steps >= 0 && asked++ >= max_steps; }, std::move(keeping));
  if (!checkpoints.empty()) trainer.resume(checkpoint::read_torch_zip(checkpoints.front()), checkpoints.front().string());
  run.done = trainer.run();
  return run;
}

inline SmallRun train_text(const std::string& text, const std::vector<std::string>& overrides = {}, int64_t max_steps = -1,
                           const engine::Ranks& ranks = {}, const std::filesystem::path& folder = {}) {
  return train(config::load_text(text, "test.yaml", overrides, engine::all_registries()), max_steps, ranks, folder);
}

// Parameters and buffers, in the order of their names' registration.
inline std::vector<torch::Tensor> state_of(const engine::Parts& parts) {
  auto state = parts.model->parameters();
  const auto buffers = parts.model->buffers();
  state.insert(state.end(), buffers.begin(), buffers.end());
  return state;
}

inline bool bitwise_equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!torch::equal(a[i], b[i])) return false;
  }
  return true;
}

}  // namespace trainer::testing
