#include <fmt/format.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "checkpoint/saver.h"
#include "checkpoint/torch_zip.h"
#include "commands/arguments.h"
#include "commands/command.h"
#include "commands/resume.h"
#include "commands/start.h"
#include "engine/registries.h"
#include "engine/trainer.h"
#include "state/compare.h"
#include "world/host_resources.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(fs::temp_directory_path() / fmt::format("trainer-verify-resume-{}", getpid())) {}
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

class StepCounter : public reporting::Sink {
 public:
  void on_step(int64_t, int64_t) override { ++num_steps; }
  int64_t num_steps = 0;
};

// Collective: `num_steps` steps from the beginning, or on from `checkpoint`; the checkpoint then, on rank 0.
std::optional<Checkpoint> train(const Start& start, const device::Placement& placement, distributed::ProcessGroups& groups,
                                int64_t num_steps, std::optional<Checkpoint> checkpoint, const fs::path& folder, Logger& logger) {
  const auto& experiment = start.experiment;
  auto parts = engine::build_parts(experiment, placement, engine::make_ranks(groups));
  engine::open_data(experiment, parts, logger);
  engine::join_ranks(experiment, parts);
  std::optional<checkpoint::Saver> saver;
  engine::Keeping keeping;
  if (start.place.rank == 0) {
    saver.emplace(checkpoint::Store(folder, /*keep_last=*/1), placement.pin_memory);
    keeping.checkpoints.saver = &*saver;
  }
  StepCounter counter;
  engine::Trainer trainer(
      experiment, parts, counter, [&] { return counter.num_steps >= num_steps; }, std::move(keeping));
  const auto file = groups.world()->broadcast_bytes(checkpoint ? checkpoint->file.string() : "");
  if (!file.empty()) trainer.resume(share(file, std::move(checkpoint), *groups.world()).tree, file);
  trainer.run();
  if (start.place.rank != 0) return std::nullopt;
  const auto newest = checkpoint::list_checkpoints(folder).front();
  return Checkpoint{newest, checkpoint::read_torch_zip(newest)};
}

// What takes its time is no part of a state.
bool is_time(const std::string& difference) { return difference.substr(0, difference.find(':')).ends_with("seconds"); }

void compare(const Checkpoint& straight, const Checkpoint& resumed, int64_t num_steps) {
  auto found = state::differences(straight.tree, resumed.tree);
  std::erase_if(found, is_time);
  const auto what =
      fmt::format("{} steps straight, and {} + {} with a checkpoint between them", num_steps, num_steps / 2, num_steps - num_steps / 2);
  if (found.empty()) {
    fmt::print("equal, bit for bit: {}, in {} tensors\n", what, state::tensors_of(straight.tree).size());
    return;
  }
  for (const auto& difference : found) fmt::print("{}\n", difference);
  throw Error(fmt::format("{} differ in {} places, first in {}; where runtime.deterministic is false, the kernels of a GPU may be why",
                          what, found.size(), found.front()));
}

}  // namespace

ExitCode verify_resume(const std::vector<std::string>& args) {
  CLI::App app("Whether a run that is stopped and continued is the straight run, bit for bit.", "trainer verify-resume");
  ExperimentArguments arguments;
  arguments.add_to(app);
  int64_t num_steps = 10;
  app.add_option("--steps", num_steps, "number of optimizer steps, of which the second half is continued")
      ->check(CLI::Range(int64_t{2}, int64_t{1'000'000'000}));
  parse(app, args);

  auto place = world::find_place({}, world::process_environment());
  const auto logger = make_console_logger(place.rank);
  Watch watch(place, logger);
  const auto registries = engine::all_registries();
  auto start = meet_others(arguments, registries, *logger, std::move(place), watch);
  const auto placement = set_up_placement(start, *logger);
  const auto groups = make_groups(start, placement);
  const TemporaryFolder folder;
  const auto run = [&](int64_t steps, std::optional<Checkpoint> checkpoint, const char* name) {
    return train(start, placement, *groups, steps, std::move(checkpoint), folder.path() / name, *logger);
  };
  const auto straight = run(num_steps, std::nullopt, "straight");
  const auto resumed = run(num_steps - num_steps / 2, run(num_steps / 2, std::nullopt, "resumed"), "resumed");
  watch.end();
  groups->shutdown();
  if (straight) compare(*straight, *resumed, num_steps);
  return ExitCode::kDone;
}

}  // namespace trainer::commands
