#pragma once
// The state of a rank before a session begins: the configuration, which is the same on all ranks, a device, and process groups.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "base/log.h"
#include "config/load.h"
#include "distributed/agreement.h"
#include "distributed/process_groups.h"
#include "distributed/rendezvous.h"
#include "distributed/supervision/supervisor.h"
#include "launch/world/rank_env.h"
#include "run/recipe/recipe.h"
#include "train/engine/parts.h"
#include "trainer/distributed.h"
#include "trainer/error.h"
#include "trainer/trainer.h"

namespace trainer::rank {

class RankContext;

// The process of one rank: its signal handlers, its log, and the supervisor that ends it when the run cannot continue.
class RankProcess {
 public:
  // Finds this process's rank, installs handlers for crashes and stop requests, and starts to watch for failures of other ranks and for
  // file accesses that block this process. Only one object per process. Throws UsageError when flags or launcher variables are incomplete
  // or contradict each other.
  explicit RankProcess(const world::RankFlags& flags = {});

  using Load = std::function<config::Experiment(const config::Registries& registries)>;
  using Work = std::function<ExitCode(RankContext& context)>;
  // Collective, once in a process: loads the experiment, connects to the other ranks, chooses the device and creates the process groups;
  // runs `work`, which must destroy everything that it creates; then shuts the groups down. A rank with an invalid experiment connects too,
  // so that one rank reports the error and all end. From then on, failures of the other ranks are watched for. Throws all errors as an
  // Error with the cause, which may be another rank. After RankContext::begin_run(), reports an error and returns its exit code; with
  // several ranks, a failed one ends its process immediately, because the others detect the failure by its closed connections. If the rank
  // uses a GPU, `work` must call RankContext::end_failed_gpu() after an error, before it destroys anything.
  ExitCode run(const Load& load, const Work& work);
  // Loads the experiment of a file. `adapt` changes it after its check, for a command that needs other values.
  Load from_file(const config::ExperimentSource& source, const std::function<void(config::Experiment& experiment)>& adapt = {}) const;

  const world::RankEnv& rank_env() const { return rank_env_; }
  const std::shared_ptr<Logger>& logger() const { return logger_; }
  supervision::Supervisor& supervisor() { return supervisor_; }

 private:
  const world::RankEnv rank_env_;
  const std::shared_ptr<Logger> logger_;
  supervision::Supervisor supervisor_;
};

class RankContext {
 public:
  // For one process, or for ranks that already have process groups: only chooses the device.
  RankContext(config::Experiment experiment, const device::HostShare& share, std::shared_ptr<Logger> logger, engine::Ranks ranks = {});
  RankContext(const RankContext&) = delete;
  RankContext& operator=(const RankContext&) = delete;

  // On a rank that uses a GPU: reports the error and ends the process. On others it has no effect.
  void end_failed_gpu(const std::exception& error);
  // To be called when the run has a log: from now on errors are logged instead of thrown to main. `checkpoint_folder`: empty except on the
  // rank that saves.
  void begin_run(const std::filesystem::path& checkpoint_folder) { checkpoint_folder_ = checkpoint_folder; }

  const config::Experiment& experiment() const { return experiment_; }
  // Of a context of a RankProcess, without the command line.
  const recipe::ExperimentRecord& record() const { return record_; }
  run::Rank& this_rank() { return rank_; }
  const device::Placement& placement() const { return rank_.placement; }
  const engine::Ranks& ranks() const { return rank_.ranks; }
  distributed::StartupBarrier& barrier() { return rank_.barrier; }
  int rank() const { return rank_.number(); }
  // The index among the ranks of this host.
  int local_rank() const { return rank_.local_rank; }
  Logger& logger() const { return *rank_.logger; }

 private:
  friend class RankProcess;
  RankContext(RankProcess& process, const RankProcess::Load& load);
  // Collective, after the work.
  void close();
  void choose_placement(const device::HostShare& share);
  // Collective: ranks without access to the data set cannot complete the experiment from it (run/recipe/check.h).
  void take_experiment_of_rank0();
  void choose_placement_together(distributed::Rendezvous& rendezvous);
  void make_groups(const distributed::Rendezvous& rendezvous);
  ExitCode end_failed(const std::exception& error);

  RankProcess* process_ = nullptr;
  config::Experiment experiment_;
  recipe::ExperimentRecord record_{.experiment = &experiment_};
  std::unique_ptr<distributed::ProcessGroups> groups_;
  std::jthread connection_watch_;                           // only with NCCL
  run::Rank rank_;                                          // whose groups end before `groups_`
  std::optional<std::filesystem::path> checkpoint_folder_;  // set by begin_run()
};

// The whole recipe, of a run without a directory. `context` must outlive it.
recipe::Recipe recipe_of(RankContext& context);

// A rank whose process groups another program has made.
run::Rank rank_of(distributed::Context& context, const TrainerOptions& options);

}  // namespace trainer::rank
