#pragma once
// All process groups of a run, which are shut down together.

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "device/placement.h"
#include "distributed/rendezvous.h"
#include "trainer/distributed.h"
#include "trainer/options.h"

namespace trainer::distributed {

struct GroupOptions {
  BackendChoice backend = BackendChoice::kAuto;  // auto means NCCL for a GPU, and gloo otherwise
  torch::Device device{torch::kCPU};
  const device::CudaModule* cuda = nullptr;
  std::string gloo_interface = {};  // name of a network interface; if empty, gloo_address is used
  std::string gloo_address = "127.0.0.1";
  std::chrono::milliseconds timeout{std::chrono::minutes(10)};
  std::shared_ptr<Activity> activity = nullptr;  // of this rank
  std::vector<RankInfo> ranks = {};              // of all ranks, by rank
};

// Whether collectives of tensors on the device use NCCL. Throws UsageError if NCCL is configured without a GPU.
bool uses_nccl(const GroupOptions& options);

class ProcessGroups {
 public:
  // For a run of one process; uses no sockets. `activity` may be null.
  explicit ProcessGroups(RankInfo mine, std::shared_ptr<Activity> activity = nullptr);
  // Collective over `world_size` processes: connects them and, with NCCL, their GPUs, which counts as waiting for the other ranks.
  // `store`: shared by these processes, with a key prefix for this run. Throws UsageError and PeerError.
  ProcessGroups(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, GroupOptions options);
  ~ProcessGroups();
  ProcessGroups(const ProcessGroups&) = delete;
  ProcessGroups& operator=(const ProcessGroups&) = delete;

  // The group of all processes.
  const std::shared_ptr<ProcessGroup>& world() const { return world_; }
  // The error that NCCL reports for its connections, or an empty string. Any thread may call this until shutdown() or the destructor
  // begins.
  std::string connection_error() const;
  // The ranks passed to the constructor.
  const std::vector<RankInfo>& ranks() const { return options_.ranks; }

  // Collective over all processes, members or not; `ranks` (world ranks, in any order) must be the same in all processes. Returns null in a
  // process that is not a member. A member's rank in the group is its position in the ascending list.
  std::shared_ptr<ProcessGroup> new_group(std::vector<int> ranks);
  // Like new_group(), but only for tensors on the CPU; does not connect the GPUs.
  std::shared_ptr<ProcessGroup> new_cpu_group(std::vector<int> ranks);

  // Collective: waits for all ranks, then shuts down every group, newest first. If this was not called or failed, the destructor aborts the
  // groups.
  void shutdown();

 private:
  std::shared_ptr<ProcessGroup> add_group(std::vector<int> ranks, torch::Device device);
  std::shared_ptr<ProcessGroup> make_group(std::vector<int> ranks, torch::Device device);
  c10::intrusive_ptr<c10d::Backend> connect_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_ = 0;
  GroupOptions options_;
  int num_made_ = 0;
  std::vector<std::shared_ptr<ProcessGroup>> groups_;  // groups that this process is a member of, oldest first
  mutable std::mutex mutex_;
  std::vector<c10::intrusive_ptr<c10d::Backend>> nccl_backends_;  // guarded by the mutex
  std::shared_ptr<ProcessGroup> world_;
};

}  // namespace trainer::distributed
