#include "distributed/stores.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/signal.h"
#include "base/text.h"
#include "distributed/addresses.h"
#include "distributed/first_line.h"
#include "trainer/error.h"

namespace trainer::distributed {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;
using std::chrono::milliseconds;

constexpr milliseconds kNone{0};
constexpr milliseconds kFirstAttempt{3000};
constexpr milliseconds kPollInterval{200};
// How much longer than its timeout an attempt may take.
constexpr milliseconds kGrace{1000};
// The pause between attempts that fail immediately, and the interval between reports of failed attempts.
constexpr milliseconds kPause{1000};
constexpr std::chrono::seconds kReportInterval{30};

void stop_if_due(RendezvousStop& stop) {
  if (stop.is_due()) throw StoppedDuringRendezvous("rank 0 could not be reached");
}

void pause(milliseconds duration, RendezvousStop& stop) {
  const auto end = std::chrono::steady_clock::now() + duration;
  while (std::chrono::steady_clock::now() < end) {
    stop_if_due(stop);
    std::this_thread::sleep_for(std::min(kPollInterval, duration));
  }
}

// One attempt to connect to the store. Runs on a separate thread, because c10d waits forever for an answer from a server that is not a
// store.
class Attempt {
 public:
  Attempt(const std::string& host, c10d::TCPStoreOptions options, milliseconds timeout) {
    options.timeout = timeout;
    std::promise<StorePointer> promise;
    store_ = promise.get_future();
    std::thread([host, options, promise = std::move(promise)]() mutable {
      try {
        if (const auto problem = resolution_problem(host); !problem.empty()) throw PeerError(problem);
        promise.set_value(c10::make_intrusive<c10d::TCPStore>(host, options));
      } catch (...) {
        promise.set_exception(std::current_exception());
      }
    }).detach();
  }

  // Returns null and sets `reason` if the attempt fails or takes longer than `timeout`.
  StorePointer wait(milliseconds timeout, RendezvousStop& stop, std::string& reason) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (store_.wait_for(kPollInterval) == std::future_status::timeout) {
      stop_if_due(stop);
      if (std::chrono::steady_clock::now() < deadline) continue;
      reason = "no answer";
      return {};
    }
    try {
      return store_.get();
    } catch (const std::exception& error) {
      reason = first_line(error);
      if (reason.starts_with("Ping failed")) reason = "the process listening there is not this run's rank 0";
      if (reason.starts_with("The client socket has timed out")) reason = "no connection";
      return {};
    }
  }
  bool is_running() const { return store_.valid(); }

 private:
  std::future<StorePointer> store_;
};

StorePointer open_tcp(const world::RankEnv& rank_env, const world::RendezvousAddress& point, milliseconds timeout, RendezvousStop& stop,
                      Logger& logger) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(point.port);
  options.isServer = rank_env.rank == 0 && !rank_env.launcher_serves_store;
  options.waitWorkers = false;
  Listener listener{Descriptor(), point.host};
  if (options.isServer && rank_env.listen_descriptor >= 0) {
    options.masterListenFd = rank_env.listen_descriptor;
  } else if (options.isServer) {
    listener = bind_store(rank_env, point);
    // c10d closes the descriptor that it receives.
    const int descriptor = fcntl(listener.socket.number(), F_DUPFD_CLOEXEC, 0);
    if (descriptor >= 0) options.masterListenFd = descriptor;
  }
  if (const auto& host = listener.host; is_loopback(host) && address_towards(host).empty()) {
    throw PeerError(fmt::format(
        "the loopback interface of this host is down, so that its ranks cannot connect to each other at {}:{}; switch it on: ip "
        "link set lo up",
        host, point.port));
  }
  const auto* goal = options.isServer ? "its own store" : "rank 0";
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto remaining = [&] {
    return std::max(kNone, std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now()));
  };

  // The first attempt is short, so that a warning soon shows why the store cannot be reached. A server makes only one attempt.
  Attempt attempt(listener.host, options, options.isServer ? timeout : std::min(kFirstAttempt, timeout));
  std::string reason;
  auto store = attempt.wait(std::min(kFirstWaitReport, timeout) + kGrace, stop, reason);
  const auto may_succeed = [&] { return !store && remaining() > kNone && (attempt.is_running() || !options.isServer); };
  std::string reported;
  std::chrono::steady_clock::time_point next_report;
  while (may_succeed()) {
    if (const auto now = std::chrono::steady_clock::now(); reason != reported || now >= next_report) {
      logger.warn("rank {} is waiting up to {} for {} at {}:{} ({})", rank_env.rank, format_duration(timeout), goal, listener.host,
                  point.port, reason);
      reported = reason;
      next_report = now + kReportInterval;
    }
    // A busy rank 0 may have accepted the connection and answer later, so an attempt that is still running is kept.
    if (!attempt.is_running()) {
      pause(std::min(kPause, remaining()), stop);
      attempt = Attempt(listener.host, options, remaining());
    }
    store = attempt.wait(remaining() + kGrace, stop, reason);
  }
  if (store) {
    store->setTimeout(timeout);
    return store;
  }
  if (reason.find("EADDRINUSE") != std::string::npos) throw port_in_use(point);
  if (options.isServer) {
    throw PeerError(
        fmt::format("rank 0 could not reach its own store at {}:{} within {} ({}); check that its host is not overloaded and "
                    "that no firewall blocks its connections to itself",
                    listener.host, point.port, format_duration(timeout), reason));
  }
  throw PeerError(
      fmt::format("rank {} could not reach rank 0 at {}:{} within {} ({}); check that rank 0 is running there, that MASTER_ADDR and "
                  "MASTER_PORT (or the init_method) are correct, and that no firewall blocks the port",
                  rank_env.rank, point.host, point.port, format_duration(timeout), reason));
}

StorePointer open_file(const world::RankEnv& rank_env, const world::RendezvousAddress& point) {
  const auto folder = std::filesystem::path(point.path).parent_path();
  if (!std::filesystem::is_directory(folder)) {
    throw PeerError(
        fmt::format("the folder of init_method file://{} does not exist on this host; use a file in a folder that all hosts "
                    "share",
                    point.path));
  }
  try {
    return c10::make_intrusive<c10d::FileStore>(point.path, rank_env.world_size);
  } catch (const std::exception& error) {
    throw PeerError(fmt::format("rank {} cannot use init_method file://{}: {}; use a file that all ranks can write to", rank_env.rank,
                                point.path, first_line(error)));
  }
}

}  // namespace

StoppedDuringRendezvous::StoppedDuringRendezvous(const std::string& state)
    : PeerError(fmt::format("stopped on request before all ranks had joined: {}", state)) {}

bool RendezvousStop::is_due() {
  // Ranks that were started together join within this time.
  constexpr milliseconds kPatience{4000};
  if (stop_signal() == 0) return false;
  const auto left = begin_ + kPatience - std::chrono::steady_clock::now();
  if (left <= kNone) return true;
  if (!is_logged_) logger_.warn("stop requested before all ranks have joined; the run ends in {} unless they join", format_duration(left));
  is_logged_ = true;
  return false;
}

StorePointer open_store(const world::RankEnv& rank_env, const world::RendezvousAddress& point, milliseconds timeout, RendezvousStop& stop,
                        Logger& logger) {
  return point.kind == world::RendezvousAddress::Kind::kFile ? open_file(rank_env, point)
                                                             : open_tcp(rank_env, point, timeout, stop, logger);
}

namespace {

using Json = nlohmann::json;

// The other ranks wait for rank 0's decision this much longer than its timeout. If the decision is an error, rank 0 waits up to this time
// for each of them to read it.
constexpr std::chrono::seconds kDecisionGrace{10};
constexpr std::chrono::seconds kSecond{1};

Json decide_or_error(const std::function<Json()>& decide) {
  try {
    return {{"result", decide()}};
  } catch (const Error& error) {
    return {{"error", error.what()}, {"exit_code", static_cast<int>(error.exit_code())}};
  }
}

}  // namespace

std::vector<uint8_t> to_bytes(const Json& json) {
  const auto text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return {text.begin(), text.end()};
}

Json from_bytes(const std::vector<uint8_t>& bytes) { return Json::parse(bytes.begin(), bytes.end()); }

bool wait_for(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout) {
  try {
    store.wait({key}, timeout);
    return true;
  } catch (const c10::DistStoreError&) {
    return false;
  } catch (const c10::DistNetworkError& error) {
    // Not every store has a separate exception type for a timeout.
    if (std::string_view(error.what()).find("imed out") == std::string_view::npos) throw;
    return false;
  }
}

LateRank::LateRank(int late_rank, std::chrono::milliseconds waited_for)
    : PeerError(fmt::format("rank {} has not finished its part of the start-up within {}; see its output, or raise "
                            "distributed.timeout_seconds if it needs longer",
                            late_rank, format_duration(waited_for))),
      rank(late_rank),
      waited(waited_for) {}

Json share_decision(c10d::Store& store, const std::function<std::string(int rank)>& key_of, int rank, int world_size,
                    std::chrono::milliseconds timeout, const std::function<Json()>& decide, const std::function<void()>& while_waiting) {
  const auto decision_key = key_of(0) + "/decision";
  const auto received_key = [&](int other) { return key_of(other) + "/received"; };
  if (rank == 0) store.set(decision_key, to_bytes(decide_or_error(decide)));
  const auto deadline = std::chrono::steady_clock::now() + timeout + kDecisionGrace;
  while (!wait_for(store, decision_key, kSecond)) {
    if (std::chrono::steady_clock::now() >= deadline) throw LateRank(0, timeout + kDecisionGrace);
    while_waiting();
  }
  const auto decision = from_bytes(store.get(decision_key));
  if (!decision.contains("error")) return decision["result"];

  store.set(received_key(rank), std::vector<uint8_t>{1});
  // Rank 0 may serve the store, so it must not exit before the other ranks have read the error.
  for (int other = 1; rank == 0 && other < world_size; ++other) {
    if (store.check({key_of(other)})) wait_for(store, received_key(other), kDecisionGrace);
  }
  throw AgreedError(rank == 0 ? decision["error"].get<std::string>() : "", static_cast<ExitCode>(decision["exit_code"].get<int>()));
}

}  // namespace trainer::distributed
