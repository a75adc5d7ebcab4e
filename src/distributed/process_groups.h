#pragma once
// All process groups of a run, which are shut down together.

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
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
  // For a run of one process; uses no sockets.
  explicit ProcessGroups(RankInfo mine, std::shared_ptr<Activity> activity = nullptr);
  // Collective: connects the processes and, with NCCL, their GPUs. `store`: shared by them, with a key prefix for this run. Throws
  // UsageError and PeerError.
  ProcessGroups(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, GroupOptions options);
  ~ProcessGroups();
  ProcessGroups(const ProcessGroups&) = delete;
  ProcessGroups& operator=(const ProcessGroups&) = delete;

  const std::shared_ptr<ProcessGroup>& world() const { return world_; }
  // The error that NCCL reports, or empty. Any thread may call this until shutdown() or the destructor begins.
  std::string connection_error() const;
  // Ends the running collectives of NCCL with undefined results; later ones throw PeerError. Any thread may call this.
  void abort_nccl(const std::string& reason);
  // The ranks passed to the constructor.
  const std::vector<RankInfo>& ranks() const { return options_.ranks; }

  // Like Context::new_group(). With kCPU the group has no connections between GPUs.
  std::shared_ptr<ProcessGroup> new_group(std::vector<int> ranks, std::optional<torch::Device> device = {});

  // Collective: waits for all ranks, then shuts down every group. If this was not called or failed, the destructor aborts them.
  void shutdown();

 private:
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

// Until the result is destroyed, calls `error` several times a second on another thread. The first text that is not empty ends the calls
// and is passed to `on_lost` on that thread. A GPU waits forever after its connection breaks, and so does a thread that synchronizes with
// it.
std::jthread watch_connections(std::function<std::string()> error, std::function<void(const std::string&)> on_lost);

}  // namespace trainer::distributed
