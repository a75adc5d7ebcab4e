#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <sstream>

#include "base/file.h"
#include "base/log.h"
#include "base/program.h"
#include "commands/doctor/checks.h"
#include "device/cuda_module.h"
#include "distributed/process_groups.h"
#include "distributed/rendezvous.h"
#include "launch/child_process.h"

namespace trainer::doctor {
namespace {

using Clock = std::chrono::steady_clock;

// Begins the line with the result.
constexpr std::string_view kResult = "measured: ";

// The result or, without one, the first error in the messages of the ranks. Errors about the loss of rank 0 are used only if there is no
// other error, because the message of rank 0, which may come later, has the reason.
Measurement read_messages(const std::string& messages) {
  constexpr std::string_view kMark = "error: ";
  Measurement result;
  std::istringstream lines(messages);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kResult)) {
      std::istringstream(line.substr(kResult.size())) >> result.latency >> result.seconds;
      return {.latency = result.latency, .seconds = result.seconds};
    }
    const auto mark = line.find(kMark);
    if (mark == std::string::npos) continue;
    const auto error = line.substr(mark + kMark.size());
    const bool is_consequence = result.problem.find(distributed::kLostRank0) != std::string::npos;
    if (result.problem.empty() || is_consequence) result.problem = error;
  }
  if (result.problem.empty()) result.problem = "a process ended without a result";
  return result;
}

}  // namespace

Measurement measure(const std::string& backend) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error("cannot create a pipe, because too many files are open; raise `ulimit -n`");
  const Descriptor out(ends[0]);
  Descriptor in(ends[1]);
  launch::ChildProcess child{.program = own_program(),
                             .arguments = {"launch", "--nproc-per-node", "2", "doctor", kMeasureOption, backend},
                             .environment = inherited_environment(),
                             .signal_mask = {},
                             .stderr_descriptor = in.number(),
                             .kept_descriptors = {}};
  const auto launcher = launch::start_process(child);
  in.close();
  std::string messages;
  std::array<char, 4096> buffer;
  for (ssize_t length = 0; (length = read(out.number(), buffer.data(), buffer.size())) > 0;) {
    messages.append(buffer.data(), static_cast<size_t>(length));
  }
  waitpid(launcher, nullptr, 0);
  return read_messages(messages);
}

namespace {

constexpr std::chrono::seconds kTimeout{20};

// The mean time of `count` calls, after two warm-up calls.
double seconds_of(int count, const torch::Device& device, const std::function<void()>& act) {
  const auto wait = [&] {
    if (device.is_cuda()) torch::cuda::synchronize(device.index());
  };
  for (int i = 0; i < 2; ++i) act();
  wait();
  const auto begin = Clock::now();
  for (int i = 0; i < count; ++i) act();
  wait();
  return std::chrono::duration<double>(Clock::now() - begin).count() / count;
}

Measurement measure_over(distributed::ProcessGroup& group, const torch::Device& device) {
  constexpr int kManyTimes = 100;
  constexpr int kTimes = 5;
  const auto one = torch::zeros({1}, device);
  auto many = torch::ones({kMeasuredBytes / static_cast<int64_t>(sizeof(float))}, device);
  group.all_reduce(many);
  if (!(many == static_cast<float>(group.size())).all().item<bool>())
    throw Error("the sum over the processes is wrong: data are damaged in the memory of this host, or on the way between the processes");
  many.zero_();
  return {.latency = seconds_of(kManyTimes, device, [&] { group.all_reduce(one); }),
          .seconds = seconds_of(kTimes, device, [&] { group.all_reduce(many); })};
}

}  // namespace

ExitCode run_measurement(const std::string& backend) {
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
  const distributed::Hello hello{.rank = distributed::this_process(), .version = ""};
  const auto rendezvous =
      distributed::join_run(rank_env, world::rendezvous_address(rank_env, "env://"), hello, rank_env.secret, kTimeout, *logger);
  options.gloo_address = rendezvous.address;
  options.ranks = rendezvous.ranks;
  distributed::ProcessGroups groups(rendezvous.group_store, rank_env.rank, rank_env.world_size, options);
  const auto result = measure_over(*groups.world(), options.device);
  if (rank_env.rank == 0) fmt::print(stderr, "{}{} {}\n", kResult, result.latency, result.seconds);
  groups.shutdown();
  return ExitCode::kDone;
}

}  // namespace trainer::doctor
