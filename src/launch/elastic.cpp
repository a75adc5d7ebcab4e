#include "launch/elastic.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <optional>

#include "base/error.h"
#include "base/plural.h"
#include "base/text.h"
#include "launch/meeting_client.h"
#include "launch/meeting_server.h"
#include "launch/signal_queue.h"
#include "world/host_resources.h"

namespace trainer::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kConnectTimeout{3};
constexpr std::chrono::seconds kRetryInterval{1};
constexpr std::chrono::seconds kReportInterval{30};
// A launcher answers a request to join at once.
constexpr std::chrono::seconds kAnswerTimeout{10};
// How long to wait for node 0's answer to a stop request.
constexpr std::chrono::seconds kFarewellTimeout{5};

class ElasticLauncher {
 public:
  ElasticLauncher(const ElasticOptions& options, const MakeProcesses& make_processes, Logger& logger)
      : options_(options),
        make_processes_(make_processes),
        logger_(logger),
        client_(options.master_addr, options.master_port, options.keep_alive, logger) {
    if (options.node == 0) {
      server_.emplace(bind_to_host(options.master_addr, options.master_port), options.limits, options.keep_alive);
    }
  }

  Outcome run() {
    std::optional<Outcome> last;  // of the processes, unless it is not to be reported
    while (true) {
      if (options_.node == 0) port_ = bind_to_host(options_.master_addr, 0);
      if (last && client_.is_connected()) {
        client_.report({.exit_code = last->exit_code, .was_asked_to_stop = last->was_asked_to_stop, .port = port_of_next_attempt()});
      } else if (!join()) {
        return stopped_while_waiting();
      }
      const auto order = wait_for_start();
      if (was_asked_to_stop_) return stopped_while_waiting();
      if (!order) {
        last.reset();
      } else if (order->kind == Order::Kind::kFinish) {
        return last && last->was_asked_to_stop ? *last : Outcome{order->exit_code, false};
      } else {
        last = run_processes(*order);
        if (client_.is_finished() || (last->was_asked_to_stop && !client_.is_connected())) return *last;
      }
    }
  }

 private:
  int port_of_next_attempt() const { return options_.node == 0 ? port_of(port_) : 0; }

  // False after a stop request. Throws PeerError.
  bool join() {
    const auto where = fmt::format("{}:{}", options_.master_addr, options_.master_port);
    const auto timeout = options_.limits.join_timeout;
    while (true) {
      auto reason = client_.connect(kConnectTimeout, signals_.descriptor());
      if (take_stop_request()) return false;
      const bool is_late = Clock::now() - last_answer_ >= timeout;
      if (reason.empty() && !is_late) break;
      if (reason.empty()) reason = "what listens there does not answer as a launcher does";
      if (is_late) {
        throw PeerError(
            fmt::format("no launcher of node 0 at {} within {} ({}); start one there with --node-rank 0, or check --master-addr, "
                        "--master-port and firewalls",
                        where, format_duration(timeout), reason));
      }
      if (Clock::now() >= next_report_) {
        logger_.info("waiting for the launcher of node 0 at {} ({}), up to {}", where, reason, format_duration(timeout));
        next_report_ = Clock::now() + kReportInterval;
      }
      wait_for_events(kRetryInterval);
      if (take_stop_request()) return false;
    }
    is_answered_ = false;
    client_.join({.node = options_.node,
                  .min_nodes = options_.limits.min_nodes,
                  .max_nodes = options_.limits.max_nodes,
                  .host = world::host_name(),
                  .process_id = getpid(),
                  .num_processes = options_.num_processes,
                  .port = port_of_next_attempt()});
    return true;
  }

  // An order to start or to finish. Empty, after a pause, if the connection is lost or another launcher has this node number, and after a
  // stop request.
  std::optional<Order> wait_for_start() {
    while (true) {
      while (auto order = client_.next_order()) {
        log(*order);
        note_answer(order->kind == Order::Kind::kRetry);
        if (order->kind == Order::Kind::kStart || order->kind == Order::Kind::kFinish) return order;
        if (order->kind == Order::Kind::kRetry) client_.close();
      }
      if (!client_.is_connected()) {
        wait_for_events(kRetryInterval);
        take_stop_request();
        return std::nullopt;
      }
      const bool has_event = wait_for_events(is_answered_ ? std::nullopt : std::optional<std::chrono::milliseconds>(kAnswerTimeout));
      if (take_stop_request()) return std::nullopt;
      if (!has_event) client_.close();
    }
  }

  // Throws UsageError if another launcher has had this node number for so long that it cannot be lost.
  void note_answer(bool is_taken) {
    const auto now = Clock::now();
    is_answered_ = true;
    next_report_ = {};
    last_answer_ = now;
    if (!is_taken) {
      taken_since_.reset();
    } else if (now - taken_since_.value_or(now) > 2 * options_.keep_alive.attempts * options_.keep_alive.interval) {
      throw UsageError(last_text_);
    } else if (!taken_since_) {
      taken_since_ = now;
    }
  }

  void log(const Order& order) {
    if (order.text.empty() || order.text == last_text_) return;
    last_text_ = order.text;
    const bool is_failure = order.kind == Order::Kind::kFinish && order.is_error;
    const bool is_news = order.kind != Order::Kind::kWait;
    logger_.log(is_failure ? spdlog::level::err : is_news ? spdlog::level::warn : spdlog::level::info, "{}", order.text);
  }

  Outcome run_processes(const Order& start) {
    last_text_.clear();
    logger_.info("attempt {}: {} with {}, from rank {} on node {}", start.attempt, counted(start.num_nodes, "node"),
                 counted(start.num_nodes * options_.num_processes, "rank"), start.group_rank * options_.num_processes, options_.node);
    const auto processes = make_processes_(start, port_.number());
    port_in_use_ = std::move(port_);
    const auto outcome = launch::run(processes, {}, logger_, signals_, &client_);
    port_in_use_.close();
    last_answer_ = Clock::now();
    return outcome;
  }

  // Until an order or a signal arrives; without `limit`, for ever. False if none has arrived.
  bool wait_for_events(std::optional<std::chrono::milliseconds> limit) {
    std::array<pollfd, 2> wanted = {{{signals_.descriptor(), POLLIN, 0}, {client_.descriptor(), POLLIN, 0}}};
    return poll(wanted.data(), wanted.size(), limit ? static_cast<int>(limit->count()) : -1) > 0;
  }

  bool take_stop_request() {
    while (const auto signal = signals_.next()) was_asked_to_stop_ = was_asked_to_stop_ || *signal != SIGCHLD;
    return was_asked_to_stop_;
  }

  // Tells node 0, which ends the run on all hosts.
  Outcome stopped_while_waiting() {
    constexpr int kStopped = static_cast<int>(ExitCode::kStopped);
    client_.report({.exit_code = kStopped, .was_asked_to_stop = true});
    const auto deadline = Clock::now() + kFarewellTimeout;
    while (client_.is_connected() && Clock::now() < deadline) {
      client_.next_order();
      wait_for_events(std::chrono::milliseconds(100));
      take_stop_request();
    }
    return {kStopped, true};
  }

  const ElasticOptions& options_;
  const MakeProcesses& make_processes_;
  Logger& logger_;
  SignalQueue signals_;
  std::optional<MeetingServer> server_;
  MeetingClient client_;
  Descriptor port_;         // of node 0: where rank 0 will listen in the next attempt
  Descriptor port_in_use_;  // and in this one
  bool was_asked_to_stop_ = false;
  bool is_answered_ = false;       // since the last request to join
  Clock::time_point next_report_;  // that node 0 is waited for
  Clock::time_point last_answer_ = Clock::now();
  std::optional<Clock::time_point> taken_since_;  // another launcher has this node number
  std::string last_text_;
};

}  // namespace

Outcome run_elastic(const ElasticOptions& options, const MakeProcesses& make_processes, Logger& logger) {
  return ElasticLauncher(options, make_processes, logger).run();
}

}  // namespace trainer::launch
