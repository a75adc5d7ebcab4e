#pragma once
// Whole runs inside a test, from the text of an experiment file to the trained session.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/store.h"
#include "config/load.h"
#include "run/rank/rank_context.h"
#include "run/recipe/registries.h"
#include "run/session/session.h"
#include "tests/testing/metrics.h"
#include "tests/testing/recorder.h"
#include "trainer/checkpoint.h"

namespace trainer::testing {

// A session on the CPU, of one process or of ranks as threads. With a `folder` it resumes from the newest checkpoint there, if it has one,
// and saves there.
struct SmallSession {
  SmallSession(config::Experiment experiment, const engine::Ranks& ranks, const std::filesystem::path& folder = {})
      : context(on_cpu(std::move(experiment)), {.num_threads = 2}, make_quiet_logger(), ranks),
        recipe(recipe_of(context, folder)),
        session(context.this_rank(), recipe) {
    const auto checkpoints = checkpoint::list_checkpoints(folder);
    context.ranks().world->barrier();
    if (!checkpoints.empty()) session.resume(checkpoints.front());
  }
  SmallSession(const std::string& text, const std::vector<std::string>& overrides = {}, const engine::Ranks& ranks = {})
      : SmallSession(load(text, overrides), ranks) {}

  static config::Experiment load(const std::string& text, const std::vector<std::string>& overrides) {
    return config::load_text(text, "test.yaml", overrides, recipe::all_registries());
  }
  static config::Experiment on_cpu(config::Experiment experiment) {
    experiment.runtime.device = device::DeviceChoice::kCpu;
    return experiment;
  }
  static recipe::Recipe recipe_of(rank::RankContext& context, const std::filesystem::path& folder) {
    auto recipe = rank::recipe_of(context);
    recipe.options.checkpoint_folder = folder;
    return recipe;
  }

  engine::Parts& parts() { return session.parts(); }

  rank::RankContext context;
  recipe::Recipe recipe;
  session::Session session;
};

struct SmallRun {
  std::unique_ptr<SmallSession> session;
  Recorder events;
  bool done = false;

  engine::Parts& parts() const { return session->parts(); }
  // Releases the process groups, which must end before this object.
  void leave_ranks() const {
    parts().data_parallel.reset();
    parts().data.train.batches.reset();
    if (parts().data.validation) parts().data.validation->batches.reset();
    parts().ranks = {};
  }
};

// Trains on the CPU until the end or until `max_steps` steps are done. Collective over `ranks`.
inline SmallRun train(config::Experiment experiment, int64_t max_steps = -1, const engine::Ranks& ranks = {},
                      const std::filesystem::path& folder = {}) {
  SmallRun run{.session = std::make_unique<SmallSession>(std::move(experiment), ranks, folder), .events = {}};
  int64_t asked = 0;
  run.done = run.session->session.train(run.events, [&] { return max_steps >= 0 && asked++ >= max_steps; });
  return run;
}

inline SmallRun train_text(const std::string& text, const std::vector<std::string>& overrides = {}, int64_t max_steps = -1,
                           const engine::Ranks& ranks = {}, const std::filesystem::path& folder = {}) {
  return train(config::load_text(text, "test.yaml", overrides, recipe::all_registries()), max_steps, ranks, folder);
}

// Parameters, then buffers, each in the order of registration.
inline std::vector<torch::Tensor> state_of(const engine::Parts& parts) {
  auto state = parts.network.model->parameters();
  const auto buffers = parts.network.model->buffers();
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
