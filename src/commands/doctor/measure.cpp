#include "commands/doctor/measure.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>
#include <sstream>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/program.h"
#include "base/text.h"
#include "device/cuda_module.h"
#include "distributed/process_groups.h"
#include "distributed/rendezvous.h"
#include "launch/child_process.h"
#include "launch/plan.h"

namespace trainer::doctor {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A pipe that collects what processes write, until all of them have closed their end.
class Pipe {
 public:
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw Error("cannot create a pipe, because too many files are open; raise `ulimit -n`");
    out_ = Descriptor(ends[0]);
    in_ = Descriptor(ends[1]);
  }

  int in() const { return in_.number(); }
  int out() const { return out_.number(); }
  void close_in() { in_.close(); }
  const std::string& text() const { return text_; }

  void read_available() {
    std::array<char, 4096> buffer;
    while (out() >= 0) {
      const auto length = read(out(), buffer.data(), buffer.size());
      if (length < 0) return;
      if (length == 0) return out_.close();
      text_.append(buffer.data(), static_cast<size_t>(length));
    }
  }

 private:
  Descriptor out_, in_;
  std::string text_;
};

class Processes {
 public:
  ~Processes() {
    for (const auto process : ids_) {
      kill(process, SIGKILL);
      waitpid(process, nullptr, 0);
    }
  }
  void add(pid_t process) { ids_.push_back(process); }

 private:
  std::vector<pid_t> ids_;
};

void start(Processes& processes, const std::string& backend, int num_processes, const Pipe& result, const Pipe& messages) {
  const launch::FreePort port;
  world::RankEnv rank_env{.world_size = num_processes, .local_world_size = num_processes};
  rank_env.master_addr = "127.0.0.1";
  rank_env.master_port = port.number();
  rank_env.secret = launch::random_secret();
  const auto inherited = launch::inherited_environment();
  launch::ChildProcess child;
  child.program = own_program();
  child.arguments = {"doctor", kMeasureOption, backend, kResultOption, std::to_string(result.in())};
  child.stderr_descriptor = messages.in();
  sigemptyset(&child.signal_mask);
  for (int rank = 0; rank < num_processes; ++rank) {
    rank_env.rank = rank_env.local_rank = rank;
    rank_env.listen_descriptor = rank == 0 ? port.descriptor() : -1;
    child.environment = launch::child_environment(inherited, rank_env, /*gpus=*/"");
    child.kept_descriptors = {result.in()};
    if (rank == 0) child.kept_descriptors.push_back(port.descriptor());
    processes.add(launch::start_process(child));
  }
}

// The first error in the messages of the ranks. Errors about the loss of rank 0 are used only if there is no other error, because the
// message of rank 0, which may come later, has the reason.
std::string first_error(const std::string& messages) {
  constexpr std::string_view kMark = "error: ";
  std::string first;
  std::istringstream lines(messages);
  for (std::string line; std::getline(lines, line);) {
    const auto mark = line.find(kMark);
    if (mark == std::string::npos) continue;
    const auto error = line.substr(mark + kMark.size());
    if (error.find(distributed::kLostRank0) == std::string::npos) return error;
    if (first.empty()) first = error;
  }
  return first.empty() ? messages.substr(0, messages.find('\n')) : first;
}

}  // namespace

Measurement measure(const std::string& backend, int num_processes, milliseconds limit) {
  Pipe result, messages;
  Processes processes;
  start(processes, backend, num_processes, result, messages);
  result.close_in();
  messages.close_in();
  const auto deadline = Clock::now() + limit;
  while (result.out() >= 0 || messages.out() >= 0) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    std::array<pollfd, 2> pipes = {pollfd{result.out(), POLLIN, 0}, pollfd{messages.out(), POLLIN, 0}};
    if (left <= milliseconds(0)) break;
    poll(pipes.data(), pipes.size(), static_cast<int>(left.count()));
    result.read_available();
    messages.read_available();
    if (!result.text().empty() && result.text().back() == '\n') return nlohmann::json::parse(result.text());
  }
  const auto error = first_error(messages.text());
  if (Clock::now() >= deadline) {
    return {.problem = fmt::format("no result within {}{}", format_duration(limit), error.empty() ? "" : "; " + error)};
  }
  return {.problem = error.empty() ? "a process ended without a result" : error};
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
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) act();
  wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / count;
}

void check_sum(const torch::Tensor& sum, int size) {
  if ((sum == static_cast<float>(size)).all().item<bool>()) return;
  throw Error("the sum over the processes is wrong: data are damaged in the memory of this host, or on the way between the processes");
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
  distributed::Rendezvous rendezvous;
  if (rank_env.world_size > 1) {
    distributed::Hello hello;
    hello.rank = distributed::this_process();
    rendezvous = distributed::join_run(rank_env, world::rendezvous_address(rank_env, "env://"), hello, rank_env.secret, kTimeout, *logger);
    options.gloo_address = rendezvous.address;
    options.ranks = rendezvous.ranks;
  } else {
    rendezvous.group_store = c10::make_intrusive<c10d::HashStore>();
  }
  distributed::ProcessGroups groups(rendezvous.group_store, rank_env.rank, rank_env.world_size, options);
  const auto line = nlohmann::json(measure_over(*groups.world(), options.device)).dump() + '\n';
  std::string_view bytes = line;
  if (rank_env.rank == 0) write_all(result_descriptor, bytes);
  groups.shutdown();
  return ExitCode::kDone;
}

}  // namespace trainer::doctor
