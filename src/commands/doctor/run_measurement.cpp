#include <torch/cuda.h>
#include <torch/types.h>
#include <unistd.h>

#include <functional>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/descriptor.h"
#include "base/log.h"
#include "commands/doctor/measure.h"
#include "device/cuda_module.h"
#include "distributed/process_groups.h"
#include "distributed/rendezvous.h"

namespace trainer::doctor {
namespace {

constexpr std::chrono::seconds kTimeout{20};

// The mean of `count` calls, after some that are not counted.
double seconds_of(int count, const torch::Device& device, const std::function<void()>& act) {
  const auto wait = [&] {
    if (device.is_cuda()) torch::cuda::synchronize(device.index());
  };
  for (int i = 0; i < 2; ++i) act();
  wait();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) act();
  wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / count;
}

void check_sum(const torch::Tensor& sum, int size) {
  if ((sum == static_cast<float>(size)).all().item<bool>()) return;
  throw Error("the sum over the processes is wrong: the memory or the network of this host damages data");
}

Measurement measure_over(distributed::ProcessGroup& group, const torch::Device& device) {
  constexpr int64_t kNumBytes = int64_t{16} << 20;
  constexpr int kManyTimes = 100;
  constexpr int kTimes = 5;
  Measurement result{.num_bytes = kNumBytes};
  const auto one = torch::zeros({1}, device);
  auto many = torch::ones({kNumBytes / static_cast<int64_t>(sizeof(float))}, device);
  group.all_reduce(many);
  check_sum(many, group.size());
  result.latency = seconds_of(kManyTimes, device, [&] { group.all_reduce(one); });
  many.zero_();
  result.seconds = seconds_of(kTimes, device, [&] { group.all_reduce(many); });
  if (device.is_cuda() || !group.share_memory_for_sums(kNumBytes)) return result;
  const auto sum = [&] {
    group.begin_sum(many);
    group.finish_sums();
  };
  many.fill_(1);
  sum();
  check_sum(many, group.size());
  many.zero_();
  result.shared_memory_seconds = seconds_of(kTimes, device, sum);
  return result;
}

}  // namespace

ExitCode run_measurement(const std::string& backend, int result_descriptor) {
  const auto logger = make_console_logger();
  const bool with_nccl = backend == "nccl";
  const auto rank_env = world::find_rank_env({}, world::process_environment());
  const auto cuda = with_nccl ? device::open_cuda_module() : device::CudaAccess();
  if (with_nccl && cuda.module == nullptr) throw Error("no GPU can be used: " + cuda.refusal);
  distributed::GroupOptions options{.gloo_interface = rank_env.gloo_interface, .timeout = kTimeout};
  if (with_nccl) {
    options.device = torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(rank_env.local_rank));
    options.cuda = cuda.module;
    cuda.module->set_device(rank_env.local_rank);
  }
  distributed::Meeting meeting;
  if (rank_env.world_size > 1) {
    distributed::Introduction introduction;
    introduction.rank = distributed::this_process();
    meeting = distributed::meet(rank_env, world::rendezvous_address(rank_env, "env://"), introduction, rank_env.secret, kTimeout, *logger);
    options.gloo_address = meeting.address;
    options.ranks = meeting.ranks;
  } else {
    meeting.group_store = c10::make_intrusive<c10d::HashStore>();
  }
  distributed::ProcessGroups groups(meeting.group_store, rank_env.rank, rank_env.world_size, options);
  const auto line = nlohmann::json(measure_over(*groups.world(), options.device)).dump() + '\n';
  std::string_view bytes = line;
  if (rank_env.rank == 0) write_all(result_descriptor, bytes);
  groups.shutdown();
  return ExitCode::kDone;
}

}  // namespace trainer::doctor
