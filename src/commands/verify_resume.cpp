#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "base/signal.h"
#include "base/text.h"
#include "checkpoint/state/tree_differences.h"
#include "checkpoint/store.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "run/rank/rank_context.h"
#include "run/session/session.h"
#include "train/engine/train_step.h"
#include "trainer/checkpoint.h"
#include "trainer/events.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    auto name = (fs::temp_directory_path() / "trainer-verify-resume-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw Error(fmt::format("cannot create the folder {}: {}", name, std::strerror(errno)));
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code not_there;
    fs::remove_all(path_, not_there);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

class StepCounter : public engine::TrainingHook {
 public:
  void after_step(int64_t) override { ++num_steps; }
  int64_t num_steps = 0;
};

// Collective: trains `num_steps` steps, from the first step or from the newest checkpoint of rank 0's `folder`, and saves there. Returns
// false if a stop request ended the training before the last step.
bool train(rank::RankContext& context, int64_t num_steps, const fs::path& folder, bool resumes = false) {
  auto recipe = rank::recipe_of(context);
  recipe.options.checkpoint_folder = folder;
  session::Session session(context.this_rank(), recipe);
  if (resumes) session.resume(folder / "last.pt");
  StepCounter counter;
  reporting::Sink no_reports;
  const auto should_stop = [&] { return counter.num_steps >= num_steps || stop_signal() != 0; };
  return session.train(no_reports, should_stop, {&counter}) || counter.num_steps >= num_steps;
}

// Durations differ between runs.
bool is_duration(const std::string& difference) { return difference.substr(0, difference.find(':')).ends_with("seconds"); }

void compare(const fs::path& straight_file, const fs::path& resumed_file, int64_t num_steps) {
  const auto straight = checkpoint::load(straight_file);
  auto found = state::differences(straight, checkpoint::load(resumed_file));
  std::erase_if(found, is_duration);
  const auto what = fmt::format("{} steps without interruption, and {} + {} steps with a checkpoint between them", num_steps, num_steps / 2,
                                num_steps - num_steps / 2);
  if (found.empty()) {
    print("equal, bit for bit, in {}: {}\n", counted(state::tensors_of(straight).size(), "tensor"), what);
    return;
  }
  for (const auto& difference : found) print("{}\n", difference);
  throw Error(fmt::format("{} differ in {}, first in {}; on a GPU, set runtime.deterministic: true to use deterministic kernels", what,
                          counted(found.size(), "place"), found.front()));
}

}  // namespace

ExitCode verify_resume(const std::vector<std::string>& args) {
  CLI::App app("Checks that a run that is stopped and resumed equals an uninterrupted run, bit for bit.", "trainer verify-resume");
  config::ExperimentSource source;
  cli::add_experiment(app, source);
  int64_t num_steps = 10;
  app.add_option("--steps", num_steps, "number of optimizer steps; the run is resumed after half of them")
      ->check(CLI::Range(int64_t{2}, int64_t{1'000'000'000}));
  cli::parse(app, args);

  rank::RankProcess process;
  std::optional<TemporaryFolder> folder;
  fs::path straight, resumed;
  const auto work = [&](rank::RankContext& context) {
    folder.emplace();
    straight = folder->path() / "straight";
    resumed = folder->path() / "resumed";
    const bool done = train(context, num_steps, straight) && train(context, num_steps / 2, resumed) &&
                      train(context, num_steps - num_steps / 2, resumed, /*resumes=*/true);
    return done ? ExitCode::kDone : ExitCode::kStopped;
  };
  const auto adapted = process.from_file(source, [](auto& experiment) { experiment.logging.histograms_every_epochs.reset(); });
  const auto exit_code = process.run(adapted, work);
  if (exit_code == ExitCode::kDone && process.rank_env().rank == 0) compare(straight / "last.pt", resumed / "last.pt", num_steps);
  return exit_code;
}

}  // namespace trainer::commands
