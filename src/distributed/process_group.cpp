#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "distributed/activity.h"
#include "distributed/first_line.h"
#include "distributed/shared_memory.h"
#include "trainer/distributed.h"
#include "trainer/error.h"

namespace trainer::distributed {
namespace {

torch::Tensor to_tensor(const std::string& bytes) {
  auto tensor = torch::empty({static_cast<int64_t>(bytes.size())}, torch::kUInt8);
  std::copy(bytes.begin(), bytes.end(), tensor.mutable_data_ptr<uint8_t>());
  return tensor;
}

std::string to_string(const torch::Tensor& tensor, int64_t size) {
  const auto* data = tensor.const_data_ptr<uint8_t>();
  return {data, data + size};
}

c10::intrusive_ptr<c10d::Work> start_broadcast(c10d::ProcessGroup& group, const torch::Tensor& tensor, int source, bool is_async) {
  std::vector<torch::Tensor> tensors{tensor};
  c10d::BroadcastOptions options;
  options.rootRank = source;
  // On a GPU, a synchronous collective runs in the caller's stream, so no events are needed to order it with the surrounding work.
  options.asyncOp = is_async;
  return group.broadcast(tensors, options);
}

// gloo would exchange the memory between the elements too.
void check_dense(const torch::Tensor& tensor, const char* what) {
  TORCH_CHECK(tensor.is_sparse() || tensor.is_non_overlapping_and_dense(), what,
              " needs a tensor without gaps in memory, but got the sizes ", tensor.sizes(), " with strides ", tensor.strides(),
              "; call contiguous() first");
}

// Gathers the inputs of all ranks into one tensor. From LibTorch 2.13 on, it has another name.
template <class Group>
c10::intrusive_ptr<c10d::Work> gather_into(Group& group, torch::Tensor& all, torch::Tensor& input, const c10d::AllgatherOptions& options) {
  if constexpr (requires { group.all_gather_single(all, input, options); }) {
    return group.all_gather_single(all, input, options);
  } else {
    return group._allgather_base(all, input, options);
  }
}

}  // namespace

ProcessGroup::ProcessGroup(std::shared_ptr<Activity> activity) : ranks_{0}, activity_(std::move(activity)) {}

ProcessGroup::ProcessGroup(c10::intrusive_ptr<c10d::ProcessGroup> group, std::vector<int> ranks, std::chrono::milliseconds timeout,
                           std::shared_ptr<Activity> activity)
    : group_(std::move(group)), ranks_(std::move(ranks)), timeout_(timeout), activity_(std::move(activity)), rank_(group_->getRank()) {}

ProcessGroup::~ProcessGroup() = default;

void ProcessGroup::check_open() const {
  if (is_closed_) throw std::logic_error("the process groups were shut down; call Context::shutdown() after all that uses them");
}

bool ProcessGroup::is_alone() const {
  check_open();
  return !group_;
}

void ProcessGroup::with_peer_errors(const char* what, const std::function<void()>& act) const {
  const Activity::Wait wait(activity_.get());
  try {
    act();
  } catch (const std::exception& error) {
    rethrow_own_error(error);
    throw PeerError(fmt::format("rank {}: {} among ranks {} failed: {}; check whether another rank exited or hangs",
                                ranks_[static_cast<size_t>(rank_)], what, fmt::join(ranks_, ", "), first_line(error)));
  }
}

void ProcessGroup::run(const char* what, const std::function<c10::intrusive_ptr<c10d::Work>()>& start) const {
  with_peer_errors(what, [&] {
    // NCCL returns no Work object for a synchronous collective.
    if (const auto work = start()) work->wait();
  });
}

void ProcessGroup::all_reduce(const torch::Tensor& tensor, c10d::ReduceOp::RedOpType reduction) const {
  if (is_alone()) return;
  check_dense(tensor, "all_reduce");
  run("all_reduce", [&] {
    std::vector<torch::Tensor> tensors{tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = reduction;
    options.asyncOp = false;
    return group_->allreduce(tensors, options);
  });
}

void ProcessGroup::sum_in_rank_order(std::span<const torch::Tensor> tensors) const {
  if (is_alone()) return;
  if (has_room_for(tensors)) {
    with_peer_errors("sum", [&] { exchange_->sum(tensors); });
    return;
  }
  for (const auto& tensor : tensors) {
    const auto all = all_gather(tensor);
    add_in_order(tensor, size(), [&](int rank) { return all[rank]; });
  }
}

void ProcessGroup::broadcast(const torch::Tensor& tensor, int source) const {
  if (is_alone()) return;
  check_dense(tensor, "broadcast");
  run("broadcast", [&] { return start_broadcast(*group_, tensor, source, /*is_async=*/false); });
}

c10::intrusive_ptr<c10d::Work> ProcessGroup::begin_broadcast(const torch::Tensor& tensor, int source) const {
  return start_broadcast(*group_, tensor, source, /*is_async=*/true);
}

torch::Tensor ProcessGroup::all_gather(const torch::Tensor& tensor) const {
  if (is_alone()) return tensor.unsqueeze(0);
  std::vector<int64_t> shape{size()};
  shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
  auto all = torch::empty(shape, tensor.options());
  if (has_room_for({&tensor, 1})) {
    with_peer_errors("all_gather", [&] { exchange_->all_gather(tensor, all); });
    return all;
  }
  if (tensor.is_cuda() && group_->getBackendType() == c10d::ProcessGroup::BackendType::NCCL) {
    // The general form below copies each rank's part once more.
    run("all_gather", [&] {
      auto input = tensor.contiguous();
      c10d::AllgatherOptions options;
      options.asyncOp = false;
      return gather_into(*group_, all, input, options);
    });
    return all;
  }
  run("all_gather", [&] {
    std::vector<std::vector<torch::Tensor>> outputs{all.unbind(0)};
    std::vector<torch::Tensor> inputs{tensor.contiguous()};
    return group_->allgather(outputs, inputs);
  });
  return all;
}

void ProcessGroup::scatter(const torch::Tensor& parts, const torch::Tensor& part, int source) const {
  if (is_alone()) {
    torch::Tensor(part).copy_(parts[0]);
    return;
  }
  run("scatter", [&] { return begin_scatter(parts, part, source); });
}

c10::intrusive_ptr<c10d::Work> ProcessGroup::begin_scatter(const torch::Tensor& parts, const torch::Tensor& part, int source) const {
  std::vector<torch::Tensor> outputs{part};
  std::vector<std::vector<torch::Tensor>> inputs;
  if (rank_ == source) inputs.push_back(parts.contiguous().unbind(0));
  c10d::ScatterOptions options;
  options.rootRank = source;
  return group_->scatter(outputs, inputs, options);
}

void ProcessGroup::wait_for(c10d::Work& work) const {
  with_peer_errors("exchange", [&] { work.wait(); });
}

torch::Tensor ProcessGroup::to_host(const torch::Tensor& tensor) const {
  const Activity::Wait wait(tensor.is_cpu() ? nullptr : activity_.get());
  return tensor.cpu();
}

std::vector<std::string> ProcessGroup::all_gather_bytes(const std::string& bytes) const {
  const auto sizes = all_gather(torch::tensor({static_cast<int64_t>(bytes.size())})).view(-1);
  // all_gather() requires tensors of equal shape.
  auto padded = torch::zeros({sizes.max().item<int64_t>()}, torch::kUInt8);
  padded.narrow(0, 0, static_cast<int64_t>(bytes.size())).copy_(to_tensor(bytes));
  std::vector<std::string> all;
  if (padded.numel() == 0) return {static_cast<size_t>(size()), ""};
  const auto gathered = all_gather(padded);
  for (int64_t i = 0; i < size(); ++i) all.push_back(to_string(gathered[i], sizes[i].item<int64_t>()));
  return all;
}

std::string ProcessGroup::broadcast_bytes(const std::string& bytes, int source) const {
  const auto num_bytes = torch::tensor({static_cast<int64_t>(bytes.size())});
  broadcast(num_bytes, source);
  const auto size = num_bytes.item<int64_t>();
  if (size == 0) return "";
  const auto tensor = rank_ == source ? to_tensor(bytes) : torch::empty({size}, torch::kUInt8);
  broadcast(tensor, source);
  return to_string(tensor, size);
}

void ProcessGroup::barrier() const { all_reduce(torch::zeros({1})); }

void ProcessGroup::share_memory(int64_t num_bytes) {
  if (!is_alone()) exchange_ = make_in_shared_memory<SharedMemoryGroup>(*this, num_bytes, timeout_);
}

bool ProcessGroup::share_memory_for_sums(int64_t num_bytes) {
  if (!is_alone()) sums_ = make_in_shared_memory<SharedMemorySum>(*this, num_bytes, timeout_);
  return sums_ != nullptr;
}

void ProcessGroup::begin_sum(const torch::Tensor& tensor) const {
  with_peer_errors("sum", [&] { sums_->begin(tensor); });
}

void ProcessGroup::finish_sums() const {
  with_peer_errors("sum", [&] { sums_->finish(); });
}

bool ProcessGroup::has_room_for(std::span<const torch::Tensor> tensors) const {
  const auto is_on_cpu = [](const torch::Tensor& tensor) { return tensor.is_cpu(); };
  return exchange_ && std::ranges::all_of(tensors, is_on_cpu) && exchange_->has_room_for(tensors);
}

void ProcessGroup::abort() const {
  if (exchange_) exchange_->leave();
  if (sums_) sums_->leave();
  if (group_) group_->abort();
}

}  // namespace trainer::distributed
