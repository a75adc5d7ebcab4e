#include "reporting/event_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "base/crash.h"
#include "base/program.h"
#include "base/text.h"
#include "trainer/error.h"

namespace trainer::reporting {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

[[noreturn]] void refuse(const std::string& place, const std::string& program, const std::string& reason) {
  throw UsageError(
      fmt::format("{}: cannot start \"{}\": {}; correct it, or set logging.command=[] to train without it", place, program, reason));
}

}  // namespace

std::string find_event_command(const std::string& program, const std::string& place) {
  try {
    return find_program(program);
  } catch (const Error& error) {
    refuse(place, program, error.what());
  }
}

EventCommand::EventCommand(EventCommandOptions options, Logger& logger) : options_(std::move(options)), logger_(logger) {
  const auto& name = options_.command.front();
  const auto file = find_event_command(name, options_.place);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw Error("cannot create a pipe: " + std::generic_category().message(errno) + "; raise the limit on open files (ulimit -n)");
  const Descriptor output(ends[0]);
  input_ = Descriptor(ends[1]);
  try {
    process_ = start_program(file, options_.command, output.number());
  } catch (const Error& error) {
    refuse(options_.place, name, error.what());
  }
  fcntl(input_.number(), F_SETFL, O_NONBLOCK);
}

void EventCommand::send(std::string_view line) {
  if (input_.number() < 0) return;
  if (waiting_.size() + line.size() < options_.most_bytes) {
    waiting_ += line;
    waiting_ += '\n';
  } else if (!std::exchange(has_dropped_, true)) {
    logger_.warn(
        "{}: {} reads events more slowly than they occur; while {} are waiting, further events are dropped, but metrics.jsonl "
        "has them; training continues",
        options_.place, options_.command.front(), format_bytes(options_.most_bytes));
  }
  write_waiting();
}

void EventCommand::write_waiting() {
  while (!waiting_.empty() && input_.number() >= 0) {
    const auto length = write(input_.number(), waiting_.data(), waiting_.size());
    if (length >= 0) {
      waiting_.erase(0, static_cast<size_t>(length));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      input_.close();
      // A program that ends closes its input a little earlier.
      const auto what = ends_within(50ms) ? describe_end(status_) : "has closed its standard input";
      warn_of_end(what + (is_finishing_ ? " before it had read all events" : " and receives no more events; training continues"));
    }
  }
  if (is_finishing_) input_.close();
}

void EventCommand::finish(std::chrono::milliseconds most) {
  is_finishing_ = true;
  const auto patience = std::min(most, options_.patience);
  const auto first = std::min<std::chrono::milliseconds>(patience, 1s);
  if (!ends_within(first)) {
    if (patience > first)
      logger_.info("waiting at most {} for the end of {} (logging.command)", format_duration(patience), options_.command.front());
    if (!ends_within(patience - first)) terminate(patience);
  }
  if (status_ != 0) warn_of_end(describe_end(status_));
}

void EventCommand::terminate(std::chrono::milliseconds patience) {
  warn_of_end(fmt::format("is still running {} after the end of the run; terminating it", format_duration(patience)));
  for (const int signal_number : {SIGTERM, SIGKILL}) {
    kill(-process_, signal_number);
    if (ends_within(2s)) return;
  }
}

bool EventCommand::ends_within(std::chrono::milliseconds duration) {
  const auto deadline = Clock::now() + duration;
  while (true) {
    write_waiting();
    const auto ended = process_ < 0 ? process_ : waitpid(process_, &status_, WNOHANG);
    // ECHILD: another part of this process has already read the program's status.
    if (ended == process_ || (ended < 0 && errno == ECHILD)) process_ = -1;
    if (process_ < 0) return true;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(10ms);
  }
}

void EventCommand::warn_of_end(const std::string& what) {
  if (!std::exchange(has_warned_, true)) logger_.warn("{}: {} {}", options_.place, options_.command.front(), what);
}

}  // namespace trainer::reporting
