#pragma once
// Process groups and data parallelism over c10d, as in Python's torch.distributed and torch.nn.parallel.DistributedDataParallel.
//
//   auto run = trainer::distributed::init_process_group();  // the ranks are started by torchrun, mpirun or srun
//   trainer::distributed::DistributedDataParallel parallel(*model, run->world());
//   for (...) {
//     parallel.before_forward();
//     parallel.backward(loss_of(model->forward(images), labels));
//     optimizer.step();
//   }
//   run->shutdown();

#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <utility>
#include <vector>

#include "trainer/error.h"
#include "trainer/options.h"

namespace torch::nn {
class Module;
}

namespace torch::autograd {
struct Node;
}

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace spdlog {
class logger;
}

namespace trainer {
using Logger = spdlog::logger;
}

namespace trainer::distributed {

class Activity;
class DataParallel;
class ProcessGroups;
class SharedMemoryGroup;
class SharedMemorySum;

// A group of processes. All ranks call its collectives in the same order with tensors of the same shape and type, on the CPU or on the
// group's device. Throws PeerError after a timeout and if a peer is lost, c10::Error for tensors that cannot be exchanged, and
// std::logic_error after Context::shutdown(). With NCCL, a collective returns before the GPU has done it; if it then times out, its result
// is undefined, and the next collective throws. Not thread-safe.
class ProcessGroup {
 public:
  // A group of only this process, without sockets; its collectives return their input.
  explicit ProcessGroup(std::shared_ptr<Activity> activity = nullptr);
  ProcessGroup(c10::intrusive_ptr<c10d::ProcessGroup> group, std::vector<int> ranks, std::chrono::milliseconds timeout,
               std::shared_ptr<Activity> activity = nullptr);
  ~ProcessGroup();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  // The members' world ranks, ascending.
  const std::vector<int>& ranks() const { return ranks_; }

  // Reduces a contiguous tensor in place; all ranks get the same bits.
  void all_reduce(const torch::Tensor& tensor, c10d::ReduceOp::RedOpType reduction = c10d::ReduceOp::SUM) const;
  // Sums small contiguous CPU tensors in place, in rank order, so that the bits do not depend on which ranks share a host.
  void sum_in_rank_order(std::span<const torch::Tensor> tensors) const;
  // Overwrites the tensors of all ranks by that of rank `source` of this group.
  void broadcast(const torch::Tensor& tensor, int source = 0) const;
  // Returns the tensors of all ranks, by rank: [size, …].
  torch::Tensor all_gather(const torch::Tensor& tensor) const;
  // Writes this rank's part of `parts` [size, …], which only `source` reads, to `part`.
  void scatter(const torch::Tensor& parts, const torch::Tensor& part, int source = 0) const;
  // broadcast() and scatter() of CPU tensors, which must not be used before wait_for() has returned. Only in a group with sockets.
  c10::intrusive_ptr<c10d::Work> begin_broadcast(const torch::Tensor& tensor, int source = 0) const;
  c10::intrusive_ptr<c10d::Work> begin_scatter(const torch::Tensor& parts, const torch::Tensor& part, int source = 0) const;
  void wait_for(c10d::Work& work) const;
  // The tensor in host memory.
  torch::Tensor to_host(const torch::Tensor& tensor) const;
  // Returns the bytes of all ranks, by rank; lengths may differ.
  std::vector<std::string> all_gather_bytes(const std::string& bytes) const;
  std::string broadcast_bytes(const std::string& bytes, int source = 0) const;
  void barrier() const;

  // Collective. From now on sum_in_rank_order and all_gather use shared memory, if the ranks can share it, for CPU tensors of up to
  // `num_bytes` in total per rank (each tensor rounded up to 64 bytes).
  void share_memory(int64_t num_bytes);
  // Collective. The same for begin_sum and finish_sums, which may be called only if the result is true.
  bool share_memory_for_sums(int64_t num_bytes);
  bool shares_memory() const { return exchange_ || sums_; }

  // Sums contiguous CPU tensors in place, with the bits of all_reduce, while the caller does other work.
  void begin_sum(const torch::Tensor& tensor) const;
  void finish_sums() const;

  void close() { is_closed_ = true; }
  // Throws std::logic_error after close().
  void check_open() const;
  // Ends running collectives with an error, here and soon on the other ranks.
  void abort() const;
  const std::shared_ptr<Activity>& activity() const { return activity_; }
  // Null in a group without sockets.
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d_group() const { return group_; }
  // Turns an exception of `act` into a PeerError with the operation and the rank, unless it is about the arguments.
  void with_peer_errors(const char* what, const std::function<void()>& act) const;

 private:
  friend class DistributedDataParallel;
  // Whether the group has no sockets. Throws std::logic_error after close().
  bool is_alone() const;
  void run(const char* what, const std::function<c10::intrusive_ptr<c10d::Work>()>& start) const;
  bool has_room_for(std::span<const torch::Tensor> tensors) const;

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::vector<int> ranks_;
  std::chrono::milliseconds timeout_{};
  std::shared_ptr<Activity> activity_;
  int rank_ = 0;
  bool is_closed_ = false;
  bool has_data_parallel_ = false;  // whether a DistributedDataParallel uses this group
  std::unique_ptr<SharedMemoryGroup> exchange_;
  std::unique_ptr<SharedMemorySum> sums_;
};

struct InitOptions {
  BackendChoice backend = BackendChoice::kAuto;  // auto: NCCL for tensors on a GPU, gloo for those on the CPU
  // Not set: the only visible GPU, or the GPU with the number of the local rank; the CPU if no GPU can be used.
  std::optional<torch::Device> device = {};
  // How long to wait for other ranks, at the start and in each collective.
  std::chrono::milliseconds timeout{std::chrono::minutes(10)};
};

// The processes of a run, and their groups.
class Context {
 public:
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int rank() const;
  int world_size() const;
  // The index among the ranks of this host.
  int local_rank() const;
  torch::Device device() const;
  // The group of all ranks.
  const std::shared_ptr<ProcessGroup>& world() const;
  // Collective over all ranks, members or not, with the same `ranks`. Returns null on a rank that is not a member. A member's rank in the
  // group is its position in the ascending list. Throws UsageError for ranks that do not exist or repeat.
  std::shared_ptr<ProcessGroup> new_group(std::vector<int> ranks);
  // Collective: waits for all ranks, then closes the connections. If it was not called, the destructor aborts them.
  void shutdown();
  // Prints to stderr: all messages of rank 0, and warnings and errors of all ranks.
  const std::shared_ptr<Logger>& logger() const;

 private:
  friend std::unique_ptr<Context> init_process_group(const InitOptions& options);
  friend struct ContextAccess;
  struct State;
  explicit Context(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Collective: connects to the other ranks. To be called once in a process, before any other use of LibTorch and before threads are started,
// because it sets environment variables. Takes rank, world size and address from the variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK,
// MASTER_ADDR, MASTER_PORT), of Open MPI, of MPICH and Intel MPI, or of Slurm; without them there is one rank. Throws UsageError for
// variables or a device that cannot be used and for ranks with different versions, and PeerError with the ranks that did not connect. An
// error that rank 0 finds for all ranks has an empty message on the others.
std::unique_ptr<Context> init_process_group(const InitOptions& options = {});

// Every rank has the whole model and a part of each batch, and gradients are averaged over the ranks during backward: Python's
// DistributedDataParallel over c10d's own Reducer. Buckets of gradients depend only on the model and the options, so that a resumed
// training adds in the same order as an uninterrupted one. Only one object per group at a time. Parameters may be complex, and gradients of
// torch::nn::Embedding with sparse(true) are sparse (not with NCCL, which cannot sum them).
class DistributedDataParallel {
 public:
  // Collective. Broadcasts the parameters and buffers of rank 0. The model must already be on its device and must outlive this object;
  // parameters must not be added or frozen later. Throws Error if no parameter is trained, UsageError if an option, the buffers' devices or
  // `group` (null) cannot be used, and std::logic_error if another object uses the group.
  DistributedDataParallel(torch::nn::Module& model, std::shared_ptr<ProcessGroup> group, const DataParallelOptions& options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // To be called before each forward pass. Collective before the first one of a step if options.broadcast_buffers is set: broadcasts the
  // buffers of rank 0. Throws std::logic_error if loss.backward() was called, because its gradients were not exchanged.
  void before_forward();
  // Collective, instead of loss.backward(): adds the gradient to each .grad and averages the result over the ranks. Throws Error with the
  // names of parameters that the loss does not depend on, unless options.find_unused_parameters is set, and PeerError if a rank is lost.
  void backward(const torch::Tensor& loss);
  // The same for ranks with batches of different sizes: averages with the weights of the ranks, usually their numbers of samples. A rank
  // without samples must pass weight 0 and a finite loss that depends on all parameters, such as the sum of the outputs of an empty batch.
  // Collective, also under NoSync. Throws UsageError if all weights are 0, or one is negative or not finite.
  void backward(const torch::Tensor& loss, double weight);

  // For gradient accumulation: during its lifetime, backward() of `parallel` only accumulates this rank's gradients; the first backward()
  // afterwards averages the sums. before_forward() must also be called during its lifetime.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& parallel) : parallel_(parallel), before_(parallel.synchronizes_) {
      parallel_.synchronizes_ = false;
    }
    ~NoSync() { parallel_.synchronizes_ = before_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel& parallel_;
    bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  // Collective: broadcasts the buffers of rank 0, before evaluating and saving.
  void sync_buffers() const;

 private:
  std::shared_ptr<ProcessGroup> group_;
  std::unique_ptr<DataParallel> data_parallel_;
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(torch::Tensor()));  // its type depends on LibTorch's version
  std::vector<std::pair<Accumulator, uintptr_t>> hooks_;
  bool synchronizes_ = true;
  bool is_first_ = true;  // whether the next forward pass is the first one of a step
  std::atomic<bool> is_in_backward_ = false;
  std::atomic<bool> has_kept_gradients_ = false;  // whether loss.backward() was called
};

}  // namespace trainer::distributed
