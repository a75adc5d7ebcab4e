#include "distributed/process_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <ranges>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

// LibTorch was built with this macro; without it c10d's gloo header, which needs gloo's headers, is empty.
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/text.h"
#include "distributed/activity.h"
#include "distributed/first_line.h"
#include "trainer/error.h"

namespace trainer::distributed {
namespace {

using BackendType = c10d::ProcessGroup::BackendType;

// From LibTorch 2.14 on, the numbers start at 0, and there is nothing to agree on.
template <class Backend>
void set_sequence_number(Backend& backend) {
  if constexpr (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 14) backend.setSequenceNumberForGroup();
}

// Collective. Listens on the network interface `interface` or, if that is empty, on `address` of this host. Throws UsageError if this host
// does not have it, and PeerError if the ranks cannot connect.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    const std::string& interface, const std::string& address,
                                                    std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  try {
    options->devices.push_back(interface.empty() ? c10d::ProcessGroupGloo::createDeviceForHostname(address)
                                                 : c10d::ProcessGroupGloo::createDeviceForInterface(interface));
  } catch (const std::exception& error) {
    throw UsageError(
        interface.empty()
            ? fmt::format("gloo cannot listen on {}: {}; set GLOO_SOCKET_IFNAME to an interface that `ip address` lists", address,
                          first_line(error))
            : fmt::format("GLOO_SOCKET_IFNAME={}: {}; set it to an interface that `ip address` lists", interface, first_line(error)));
  }
  try {
    return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
  } catch (const std::exception& error) {
    throw PeerError(
        fmt::format("rank {} cannot connect to the other ranks over gloo from {}: {}; set GLOO_SOCKET_IFNAME to an interface "
                    "that all hosts can reach",
                    rank, interface.empty() ? address : interface, first_line(error)));
  }
}

}  // namespace

bool uses_nccl(const GroupOptions& options) {
  if (options.backend == BackendChoice::kNccl && options.cuda == nullptr) {
    throw UsageError("distributed.backend: nccl supports only GPU tensors, but this run uses the CPU; set gloo or auto");
  }
  return options.cuda != nullptr && options.backend != BackendChoice::kGloo;
}

ProcessGroups::ProcessGroups(RankInfo mine, std::shared_ptr<Activity> activity)
    : world_(std::make_shared<ProcessGroup>(std::move(activity))) {
  options_.ranks = {std::move(mine)};
}

ProcessGroups::ProcessGroups(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, GroupOptions options)
    : store_(std::move(store)), rank_(rank), options_(std::move(options)) {
  const auto ranks = std::views::iota(0, world_size);
  world_ = make_group({ranks.begin(), ranks.end()}, options_.device);
}

ProcessGroups::~ProcessGroups() {
  abort_nccl("the process groups are destroyed");
  for (const auto& group : groups_) {
    try {
      group->abort();
    } catch (const std::exception&) {
      // NCCL throws the failure that ended the run, which has already been reported.
    }
  }
}

std::shared_ptr<ProcessGroup> ProcessGroups::new_group(std::vector<int> ranks, std::optional<torch::Device> device) {
  std::ranges::sort(ranks);
  const bool is_valid =
      !ranks.empty() && ranks.front() >= 0 && ranks.back() < world_->size() && std::ranges::adjacent_find(ranks) == ranks.end();
  if (!is_valid) {
    throw UsageError(fmt::format("there is no group of the ranks [{}]; list at least one rank, each once, from 0 to {}",
                                 fmt::join(ranks, ", "), world_->size() - 1));
  }
  world_->check_open();
  if (world_->c10d_group() == nullptr) return world_;
  return make_group(std::move(ranks), device.value_or(options_.device));
}

std::shared_ptr<ProcessGroup> ProcessGroups::make_group(std::vector<int> ranks, torch::Device device) {
  // The number is the same on every rank, because every rank calls this function for every group.
  const auto name = fmt::format("group{}", num_made_++);
  const auto member = std::ranges::find(ranks, rank_);
  if (member == ranks.end()) return nullptr;
  const auto rank = static_cast<int>(member - ranks.begin());
  const auto size = static_cast<int>(ranks.size());

  const auto store = c10::make_intrusive<c10d::PrefixStore>(name, store_);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  const auto add = [&](torch::DeviceType place, BackendType type, const c10::intrusive_ptr<c10d::Backend>& backend) {
    set_sequence_number(*backend);
    group->setBackend(place, type, backend);
  };
  const auto gloo = [&] {
    const Activity::Wait wait(options_.activity.get());
    return make_gloo_backend(c10::make_intrusive<c10d::PrefixStore>("cpu", store), rank, size, options_.gloo_interface,
                             options_.gloo_address, options_.timeout);
  }();
  const bool with_nccl = device.is_cuda() && uses_nccl(options_);
  group->setDefaultBackend(with_nccl ? BackendType::NCCL : BackendType::GLOO);
  group->setGroupName(name);
  if (with_nccl) {
    group->setBoundDeviceId(device);
    add(torch::kCUDA, BackendType::NCCL, connect_nccl(store, rank, size));
  } else if (device.is_cuda()) {
    add(torch::kCUDA, BackendType::GLOO, gloo);
  }
  add(torch::kCPU, BackendType::GLOO, gloo);
  groups_.push_back(std::make_shared<ProcessGroup>(std::move(group), std::move(ranks), options_.timeout, options_.activity));
  return groups_.back();
}

c10::intrusive_ptr<c10d::Backend> ProcessGroups::connect_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  const Activity::Wait wait(options_.activity.get());
  try {
    const auto backend = options_.cuda->make_nccl_backend(c10::make_intrusive<c10d::PrefixStore>("cuda", store), rank, size,
                                                          options_.device, options_.timeout);
    // Without this call, NCCL would connect in the first collective, where a broken connection could not be distinguished from a rank that
    // hangs.
    backend->eagerConnectSingleDevice(options_.device);
    const std::lock_guard lock(mutex_);
    nccl_backends_.push_back(backend);
    return backend;
  } catch (const std::exception& error) {
    rethrow_own_error(error);
    throw PeerError(fmt::format("rank {}: NCCL cannot connect {}: {}; NCCL_DEBUG=INFO in the environment shows its steps", rank_,
                                counted(size, "GPU"), first_line(error)));
  }
}

std::string ProcessGroups::connection_error() const {
  const std::lock_guard lock(mutex_);
  for (const auto& backend : nccl_backends_) {
    const auto error = backend->getError();
    if (error == c10d::ErrorType::SUCCESS) continue;
    const auto* what = error == c10d::ErrorType::TIMEOUT      ? "a collective timed out"
                       : error == c10d::ErrorType::COMM_ERROR ? "a connection was lost"
                                                              : "another rank has an error";
    return fmt::format("rank {}: NCCL reports that {}; check whether another rank exited or hangs", rank_, what);
  }
  return "";
}

void ProcessGroups::abort_nccl(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (nccl_backends_.empty()) return;
  try {
    options_.cuda->abort_nccl(nccl_backends_, reason);
  } catch (const std::exception&) {
    // NCCL throws the failure that ended the run, which has already been reported.
  }
}

void ProcessGroups::shutdown() {
  if (groups_.empty()) {
    world_->close();
    return;
  }
  world_->barrier();
  {
    const std::lock_guard lock(mutex_);
    nccl_backends_.clear();
  }
  for (; !groups_.empty(); groups_.pop_back()) {
    groups_.back()->close();
    groups_.back()->c10d_group()->shutdown();
  }
}

std::jthread watch_connections(std::function<std::string()> error, std::function<void(const std::string&)> on_lost) {
  return std::jthread([error = std::move(error), on_lost = std::move(on_lost)](const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any stopped;
    while (!stop.stop_requested()) {
      if (const auto text = error(); !text.empty()) return on_lost(text);
      stopped.wait_for(lock, stop, std::chrono::milliseconds(200), [] { return false; });
    }
  });
}

}  // namespace trainer::distributed
