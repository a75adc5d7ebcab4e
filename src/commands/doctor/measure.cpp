#include "commands/doctor/measure.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <vector>

#include "base/text.h"
#include "launch/child_process.h"
#include "launch/plan.h"

namespace trainer::doctor {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// What the processes write to it, until all of them have closed it.
class Pipe {
 public:
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw Error("no pipe can be made; too many files are open");
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
  child.program = std::filesystem::read_symlink("/proc/self/exe").string();
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

std::string first_error(const std::string& messages) {
  constexpr std::string_view kMark = "error: ";
  const auto begin = messages.find(kMark);
  if (begin == std::string::npos) return messages.substr(0, messages.find('\n'));
  return messages.substr(begin + kMark.size(), messages.find('\n', begin) - begin - kMark.size());
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

}  // namespace trainer::doctor
