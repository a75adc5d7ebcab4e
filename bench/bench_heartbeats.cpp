// Measures the load of failure detection on the store and the time until all ranks report a lost rank, with real detectors over real
// sockets, all ranks in one process and the store in another. No training runs.

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <nlohmann/json.hpp>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "distributed/supervision/failure_detector.h"
#include "tests/testing/counting_store.h"

using namespace trainer;
using nlohmann::json;
using Clock = std::chrono::steady_clock;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

namespace {

struct Options {
  int num_ranks = 512;
  int hang_seconds = 10;
  int seconds = 20;  // duration of the measurement of the load
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A store's server in a separate process, so that its processor time is measured separately from that of the clients.
class ServerProcess {
 public:
  // Forks, so it must be constructed before any thread is started.
  ServerProcess() {
    int ends[2];
    TORCH_CHECK(pipe(ends) == 0, "pipe");
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      c10d::TCPStoreOptions options;
      options.port = 0;
      options.isServer = true;
      options.waitWorkers = false;
      const c10d::TCPStore store("127.0.0.1", options);
      const uint16_t port = store.getPort();
      if (write(ends[1], &port, sizeof(port)) == sizeof(port)) pause();
      _exit(1);
    }
    TORCH_CHECK(read(ends[0], &port_, sizeof(port_)) == sizeof(port_), "the store does not start");
    close(ends[0]);
    close(ends[1]);
  }
  ~ServerProcess() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  StorePointer connect() const {
    c10d::TCPStoreOptions options;
    options.port = port_;
    options.waitWorkers = false;
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }
  double cpu_seconds() const {
    clockid_t clock{};
    timespec time{};
    TORCH_CHECK(clock_getcpuclockid(process_, &clock) == 0 && clock_gettime(clock, &time) == 0, "the store's process has ended");
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

 private:
  pid_t process_ = 0;
  uint16_t port_ = 0;
};

// The ranks of one run, each with its own detector and connection.
class Run {
 public:
  // `connections`: one for each rank.
  Run(const std::vector<StorePointer>& connections, const std::string& prefix, const Options& options) : num_ranks_(options.num_ranks) {
    supervision::FailureDetectorOptions detector{.rank0_serves_store = false, .hang_limit = std::chrono::seconds(options.hang_seconds)};
    for (int rank = 0; rank < num_ranks_; ++rank) detector.ranks.push_back({.host = "host", .process_id = rank});
    for (int rank = 0; rank < num_ranks_; ++rank) {
      activities_.push_back(std::make_shared<distributed::Activity>());
      detector.rank = rank;
      c10d::PrefixStore store(prefix, connections[static_cast<size_t>(rank)]);
      detectors_.push_back(std::make_unique<supervision::FailureDetector>(
          store, activities_.back(), detector, [this](const supervision::Failure& failure) { note(to_string(failure)); }));
    }
    trainer_ = std::thread([this] { train(); });
  }
  ~Run() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
      changed_.notify_all();
    }
    trainer_.join();
    for (const auto& detector : detectors_) {
      if (detector) detector->finish();
    }
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Makes rank `lost` send nothing more, and returns what the other ranks report. `is_noticed`: whether another rank asks for the first
  // failure, as after a broken connection.
  json lose(int lost, bool is_noticed, int patience_seconds) {
    std::vector<std::string> before;
    {
      const std::lock_guard lock(mutex_);
      before = failures_;
    }
    const auto start = Clock::now();
    detectors_[static_cast<size_t>(lost)].reset();
    if (is_noticed) {
      const auto failure = detectors_[static_cast<size_t>(lost + 1) % detectors_.size()]->first_failure();
      note(failure ? to_string(*failure) : "nothing");
    }
    std::unique_lock lock(mutex_);
    const auto num_others = static_cast<size_t>(num_ranks_ - 1);
    changed_.wait_for(lock, std::chrono::seconds(patience_seconds), [&] { return failures_.size() >= num_others; });
    const double seconds = seconds_since(start);
    const auto named = "rank " + std::to_string(lost) + " (";
    const auto num_right = std::ranges::count_if(failures_, [&](const std::string& text) { return text.starts_with(named); });
    return {{"failures_reported_before", before.size()},
            {"ranks_that_named_it", num_right},
            {"other_reports", failures_.size() - static_cast<size_t>(num_right)},
            {"seconds_until_all_named_it", failures_.size() >= num_others ? json(seconds) : json(nullptr)},
            {"text", failures_.empty() ? "" : failures_.back()}};
  }

 private:
  void note(const std::string& text) {
    const std::lock_guard lock(mutex_);
    failures_.push_back(text);
    changed_.notify_all();
  }

  // Reports a new step of every rank each half second.
  void train() {
    std::unique_lock lock(mutex_);
    for (int64_t step = 0; !is_over_; ++step) {
      for (const auto& activity : activities_) activity->enter(distributed::Phase::kStep, step);
      changed_.wait_for(lock, std::chrono::milliseconds(500), [this] { return is_over_; });
    }
  }

  int num_ranks_;
  std::vector<std::shared_ptr<distributed::Activity>> activities_;
  std::vector<std::unique_ptr<supervision::FailureDetector>> detectors_;
  std::mutex mutex_;  // guards failures_ and is_over_
  std::condition_variable changed_;
  std::vector<std::string> failures_;
  bool is_over_ = false;
  std::thread trainer_;
};

// Connects all ranks, 64 at a time, because each connection may wait for a name server.
std::vector<StorePointer> connect_all(const ServerProcess& server, int num_ranks, const testing::CountingStore::Counter& num_messages) {
  std::vector<StorePointer> connections(static_cast<size_t>(num_ranks));
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 64; ++i) {
    threads.emplace_back([&] {
      for (size_t rank = next++; rank < connections.size(); rank = next++) {
        connections[rank] = c10::make_intrusive<testing::CountingStore>(server.connect(), num_messages);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return connections;
}

json measure(const Options& options, const ServerProcess& server) {
  const auto num_messages = std::make_shared<std::atomic<int64_t>>(0);
  const auto connections = connect_all(server, options.num_ranks, num_messages);
  const int patience = 3 * options.hang_seconds + 30;
  json result{{"ranks", options.num_ranks}, {"hang_seconds", options.hang_seconds}};
  {
    Run run(connections, "silent", options);
    std::this_thread::sleep_for(std::chrono::seconds(3));
    const auto start = Clock::now();
    const auto messages_before = num_messages->load();
    const auto cpu_before = server.cpu_seconds();
    const auto clients_before = std::clock();
    std::this_thread::sleep_for(std::chrono::seconds(options.seconds));
    const double seconds = seconds_since(start);
    result["store_messages_per_second"] = static_cast<double>(num_messages->load() - messages_before) / seconds;
    result["store_cpu_seconds_per_second"] = (server.cpu_seconds() - cpu_before) / seconds;
    result["clients_cpu_seconds_per_second"] = static_cast<double>(std::clock() - clients_before) / CLOCKS_PER_SEC / seconds;
    result["silent_rank"] = run.lose(options.num_ranks / 2, /*is_noticed=*/false, patience);
  }
  Run run(connections, "ended", options);
  std::this_thread::sleep_for(std::chrono::seconds(5));
  result["ended_rank"] = run.lose(options.num_ranks / 2, /*is_noticed=*/true, patience);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Cost of failure detection with many ranks");
  Options options;
  app.add_option("--ranks", options.num_ranks);
  app.add_option("--hang-seconds", options.hang_seconds);
  app.add_option("--seconds", options.seconds, "duration of the load measurement");
  CLI11_PARSE(app, argc, argv);

  // Each rank needs a descriptor for its connection.
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  const ServerProcess server;
  std::puts(measure(options, server).dump(2).c_str());
}
