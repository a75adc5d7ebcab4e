#include "reporting/event_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

#include "base/crash.h"
#include "base/program.h"
#include "base/text.h"
#include "trainer/error.h"

namespace trainer::reporting {
namespace {

using namespace std::chrono_literals;

// The interval between two checks of whether the program has ended, once this is expected.
constexpr auto kCheckInterval = 50ms;
// How long a program may take to end after a signal, or after it has stopped reading (the warning about this then says how it ended).
constexpr auto kTimeToEnd = 2s;
// Longer lines of the program's output are logged in pieces.
constexpr size_t kLongestLine = size_t{64} << 10;
// The most output that is read in an interval, so that a program that prints without pause takes little of this process's time.
constexpr size_t kReadAtOnce = size_t{256} << 10;
// The limits of the logged output, in bytes: a burst (about a thousand lines), the rate per second after it, and the total.
constexpr double kBurst = 256 << 10;
constexpr double kEachSecond = 32 << 10;
constexpr size_t kMostLogged = size_t{16} << 20;
// A shorter line counts as this many bytes.
constexpr size_t kShortLine = 256;

[[noreturn]] void refuse(const std::string& place, const std::string& program, const std::string& reason) {
  throw UsageError(
      fmt::format("{}: cannot start \"{}\": {}; correct it, or set logging.command=[] to train without it", place, program, reason));
}

std::string reason_of(int error) { return std::generic_category().message(error); }

// Both ends are close-on-exec, so that the program inherits only the ends that it is given.
std::pair<Descriptor, Descriptor> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error("cannot create a pipe: " + reason_of(errno) + "; raise the limit on open files (ulimit -n)");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace

std::string find_event_command(const std::string& program, const std::string& place) {
  try {
    return find_program(program);
  } catch (const Error& error) {
    refuse(place, program, error.what());
  }
}

EventCommand::EventCommand(EventCommandOptions options, Logger& logger)
    : options_(std::move(options)), logger_(logger), wake_up_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const auto& name = options_.command.front();
  const auto file = find_event_command(name, options_.place);
  auto [input_out, input_in] = make_pipe();
  auto [output_out, output_in] = make_pipe();
  try {
    process_ = start_program(file, options_.command, input_out.number(), output_in.number());
  } catch (const Error& error) {
    refuse(options_.place, name, error.what());
  }
  fcntl(input_in.number(), F_SETFL, O_NONBLOCK);
  fcntl(output_out.number(), F_SETFL, O_NONBLOCK);
  input_ = std::move(input_in);
  output_ = std::move(output_out);
  thread_ = std::thread([this] { run(); });
}

void EventCommand::send(std::string_view line) {
  {
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    const bool fits = num_sending_ + waiting_.size() + line.size() < options_.most_bytes;
    if (fits) {
      waiting_ += line;
      waiting_ += '\n';
    } else if (!std::exchange(has_dropped_, true)) {
      logger_.warn(
          "{}: {} reads events more slowly than they occur; while {} are waiting, further events are dropped, but metrics.jsonl "
          "has them; training continues",
          options_.place, options_.command.front(), format_bytes(options_.most_bytes));
    }
  }
  eventfd_write(wake_up_.number(), 1);
}

void EventCommand::finish(std::chrono::milliseconds most) {
  {
    const std::lock_guard lock(mutex_);
    // The thread reads `patience` only after finished_at_ is set.
    if (!finished_at_) options_.patience = std::min(options_.patience, most);
    if (!finished_at_) finished_at_ = Clock::now();
  }
  eventfd_write(wake_up_.number(), 1);
  if (thread_.joinable()) thread_.join();
}

void EventCommand::run() {
  // Writing to a program that has ended must return an error instead of ending this process.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  while (!has_ended()) {
    wait_for_event();
    read_output();
    write_lines();
    const auto now = Clock::now();
    if (lost_at_ && now - *lost_at_ > kTimeToEnd) warn_of_loss("has closed its standard input");
    std::optional<Clock::time_point> finished_at;
    {
      const std::lock_guard lock(mutex_);
      finished_at = finished_at_;
    }
    if (!finished_at) continue;
    if (now - *finished_at > options_.patience) {
      terminate();
      break;
    }
    if (now - *finished_at > 1s && !std::exchange(has_announced_wait_, true)) {
      logger_.info("waiting at most {} for the end of {} (logging.command)", format_duration(options_.patience), options_.command.front());
    }
  }
  read_output();
  if (!rest_.empty()) log_line(rest_);
  log_num_skipped();
  report_end();
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  waiting_ = {};
}

void EventCommand::wait_for_event() {
  bool has_lines = sent_ < sending_.size();
  bool expects_end = lost_at_.has_value();
  {
    const std::lock_guard lock(mutex_);
    has_lines = has_lines || !waiting_.empty();
    expects_end = expects_end || finished_at_;
  }
  const int output = has_more_output_ ? -1 : output_.number();
  std::array<pollfd, 3> wanted = {
      {{wake_up_.number(), POLLIN, 0}, {input_.number(), static_cast<short>(has_lines ? POLLOUT : 0), 0}, {output, POLLIN, 0}}};
  if (poll(wanted.data(), wanted.size(), expects_end || has_more_output_ ? static_cast<int>(kCheckInterval / 1ms) : -1) < 0) return;
  eventfd_t count = 0;
  eventfd_read(wake_up_.number(), &count);
  if ((wanted[1].revents & POLLERR) != 0) lose_reader();
}

void EventCommand::read_output() {
  std::array<char, 4096> buffer;
  has_more_output_ = false;
  for (size_t num_read = 0; output_.number() >= 0;) {
    has_more_output_ = num_read >= kReadAtOnce;
    if (has_more_output_) return;
    const auto length = read(output_.number(), buffer.data(), buffer.size());
    if (length < 0 && errno == EINTR) continue;
    if (length < 0 && errno == EAGAIN) return;
    if (length <= 0) return output_.close();
    num_read += static_cast<size_t>(length);
    rest_.append(buffer.data(), static_cast<size_t>(length));
    take_lines();
  }
}

void EventCommand::take_lines() {
  size_t begin = 0;
  for (size_t end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', begin)) {
    log_line(std::string_view(rest_).substr(begin, end - begin));
    begin = end + 1;
  }
  rest_.erase(0, begin);
  if (rest_.size() > kLongestLine) log_line(std::exchange(rest_, {}));
}

void EventCommand::log_line(std::string_view line) {
  if (num_logged_bytes_ >= kMostLogged) return;
  const auto now = Clock::now();
  credit_ = std::min(kBurst, credit_ + kEachSecond * std::chrono::duration<double>(now - std::exchange(credit_time_, now)).count());
  const auto size = std::max(line.size(), kShortLine);
  // After lines were skipped, logging continues when the credit has reached kEachSecond.
  if (credit_ < std::max(static_cast<double>(size), num_skipped_ > 0 ? kEachSecond : 0)) {
    ++num_skipped_;
    return;
  }
  log_num_skipped();
  credit_ -= static_cast<double>(size);
  num_logged_bytes_ += size;
  logger_.info("{}: {}", options_.command.front(), line);
  if (num_logged_bytes_ < kMostLogged) return;
  logger_.warn("{}: the output of {} is no longer logged, because it exceeds {}", options_.place, options_.command.front(),
               format_bytes(kMostLogged));
}

void EventCommand::log_num_skipped() {
  if (num_skipped_ == 0) return;
  logger_.warn("{}: {} prints more than can be logged: {} skipped", options_.place, options_.command.front(),
               counted(std::exchange(num_skipped_, 0), "line"));
}

void EventCommand::write_lines() {
  while (input_.number() >= 0) {
    if (sent_ == sending_.size()) {
      const std::lock_guard lock(mutex_);
      sending_ = std::exchange(waiting_, {});
      num_sending_ = sending_.size();
      sent_ = 0;
      if (sending_.empty()) {
        if (finished_at_) input_.close();
        return;
      }
    }
    const auto length = write(input_.number(), sending_.data() + sent_, sending_.size() - sent_);
    if (length >= 0) {
      sent_ += static_cast<size_t>(length);
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      return lose_reader();
    }
  }
}

void EventCommand::lose_reader() {
  input_.close();
  lost_at_ = Clock::now();
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  waiting_ = {};
}

bool EventCommand::has_ended() {
  int status = 0;
  if (status_) return true;
  const auto ended = waitpid(process_, &status, WNOHANG);
  // ECHILD: another part of this process has already read the program's status.
  if (ended == process_ || (ended < 0 && errno == ECHILD)) status_ = status;
  return status_.has_value();
}

bool EventCommand::has_ended_within(std::chrono::milliseconds duration) {
  const auto deadline = Clock::now() + duration;
  while (!has_ended() && Clock::now() < deadline) std::this_thread::sleep_for(kCheckInterval);
  return has_ended();
}

void EventCommand::terminate() {
  logger_.warn("{}: {} is still running {} after the end of the run; terminating it", options_.place, options_.command.front(),
               format_duration(options_.patience));
  has_warned_ = true;
  for (const int signal_number : {SIGTERM, SIGKILL}) {
    kill(-process_, signal_number);
    if (has_ended_within(kTimeToEnd)) return;
  }
}

void EventCommand::report_end() {
  if (!status_) return;
  const bool is_early = lost_at_ || input_.number() >= 0;
  if (is_early) {
    warn_of_loss(describe_end(*status_));
  } else if (*status_ != 0 && !has_warned_) {
    logger_.warn("{}: {} {}", options_.place, options_.command.front(), describe_end(*status_));
  }
}

void EventCommand::warn_of_loss(const std::string& what) {
  if (std::exchange(has_warned_, true)) return;
  const std::lock_guard lock(mutex_);
  logger_.warn("{}: {} {} {}", options_.place, options_.command.front(), what,
               finished_at_ ? "before it had read all events" : "and receives no more events; training continues");
}

}  // namespace trainer::reporting
