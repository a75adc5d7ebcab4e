#pragma once
// What a rank has before a session begins: the configuration that all ranks agreed on, a device, and groups with the other ranks.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/load.h"
#include "distributed/process_groups.h"
#include "distributed/rendezvous.h"
#include "distributed/startup_barrier.h"
#include "engine/ranks.h"
#include "session/rank_process.h"

namespace trainer::session {

class RankContext {
 public:
  // Collective: loads the configuration, meets the other ranks, chooses the device and makes the process groups. A rank whose
  // configuration is wrong meets the others too, so that one rank reports it and all end. From the meeting on, `process` watches
  // for failures of the other ranks. Throws what config::load, distributed::meet and device::choose_placement do.
  RankContext(RankProcess& process, const config::ExperimentSource& source);
  // Of one process, or of ranks whose groups exist already: chooses the device alone.
  RankContext(config::Experiment experiment, const device::HostShare& share, std::shared_ptr<Logger> logger, engine::Ranks ranks = {});
  RankContext(const RankContext&) = delete;
  RankContext& operator=(const RankContext&) = delete;

  // Collective, on the context of a RankProcess: runs `work`, which ends what it has begun, then shuts the process groups down. Where
  // the run of the process has begun, an error is reported here and its exit code returned; a failed rank of several ends the process
  // at once, because the other ranks learn of it when its connections close.
  ExitCode run(const std::function<ExitCode()>& work);

  const config::Experiment& experiment() const { return experiment_; }
  const std::string& config_text() const { return config_text_; }
  const device::Placement& placement() const { return placement_; }
  const engine::Ranks& ranks() const { return ranks_; }
  // Of all ranks, by rank.
  const std::vector<distributed::RankInfo>& rank_infos() const { return ranks_.infos; }
  distributed::StartupBarrier& barrier() { return barrier_; }
  int rank() const { return ranks_.world->rank(); }
  // Of the ranks on this host.
  int local_rank() const { return local_rank_; }
  Logger& logger() const { return *logger_; }
  RankProcess* process() const { return process_; }

 private:
  void choose_placement(const device::HostShare& share);
  void choose_placement_together(distributed::Meeting& meeting);
  void make_groups(const distributed::Meeting& meeting);
  ExitCode end_failed(ExitCode exit_code);

  RankProcess* process_ = nullptr;
  std::shared_ptr<Logger> logger_;
  config::Experiment experiment_;
  std::string config_text_;
  distributed::StartupBarrier barrier_;
  int local_rank_ = 0;
  device::Placement placement_;
  std::unique_ptr<distributed::ProcessGroups> groups_;
  engine::Ranks ranks_;
};

}  // namespace trainer::session
