#pragma once
// The program of logging.command, which receives the events of a run as lines on its standard input.

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/log.h"

namespace trainer::reporting {

struct EventCommandOptions {
  std::vector<std::string> command;                               // the program, looked up as by a shell, and its arguments; not empty
  std::string place;                                              // the beginning of messages: "x.yaml:3:14: logging.command"
  std::chrono::milliseconds patience = std::chrono::seconds(60);  // how long finish() waits for the program's end
  size_t most_bytes = size_t{16} << 20;                           // of lines that the program has not read yet
};

// Throws UsageError, which begins with `place`, if the program cannot be found or executed. Returns its path.
std::string find_event_command(const std::string& program, const std::string& place);

// If the program ends or does not read, the caller is neither stopped nor slowed down: a warning is logged once, and lines that cannot be
// sent are dropped. The program's output is logged line by line: all of it at up to 32 KiB per second, only a part of it at a higher rate,
// and at most 16 MiB in total. The program runs in its own process group, so that Ctrl-C in a terminal does not end it before it has
// received the last events.
class EventCommand {
 public:
  // Starts the program; throws UsageError if that fails. A thread of this object uses `logger`, which must outlive it.
  EventCommand(EventCommandOptions options, Logger& logger);
  ~EventCommand() { finish(); }
  EventCommand(const EventCommand&) = delete;
  EventCommand& operator=(const EventCommand&) = delete;

  // `line` has no newline. Does not wait.
  void send(std::string_view line);
  // Sends the waiting lines to the program, closes its input and waits for its end; terminates it if that takes longer than `most` or the
  // options' patience.
  void finish(std::chrono::milliseconds most = std::chrono::hours(24));

 private:
  using Clock = std::chrono::steady_clock;

  // Runs in the thread.
  void run();
  void wait_for_event();
  void read_output();
  void take_lines();
  void log_line(std::string_view line);
  void log_num_skipped();
  void write_lines();
  void lose_reader();
  bool has_ended();
  bool has_ended_within(std::chrono::milliseconds duration);
  void terminate();
  void report_end();
  void warn_of_loss(const std::string& what);

  EventCommandOptions options_;
  Logger& logger_;
  pid_t process_ = -1;
  Descriptor wake_up_;

  std::mutex mutex_;      // guards the members of this block
  std::string waiting_;   // lines that the thread has not taken yet
  bool is_over_ = false;  // the program does not read any more
  bool has_dropped_ = false;
  size_t num_sending_ = 0;                        // the size of sending_
  std::optional<Clock::time_point> finished_at_;  // when finish() was called

  // Used by the thread only.
  Descriptor input_;
  Descriptor output_;
  std::string sending_;  // lines being written to the program; the part from sent_ on is not written yet
  size_t sent_ = 0;
  bool has_more_output_ = false;  // there is more output than was read at once
  std::string rest_;              // the last, incomplete line of the output
  double credit_ = 0;             // bytes that may be logged now
  Clock::time_point credit_time_ = {};
  size_t num_logged_bytes_ = 0;
  int64_t num_skipped_ = 0;  // skipped lines since the last logged one
  std::optional<int> status_;
  std::optional<Clock::time_point> lost_at_;  // when the program stopped reading
  bool has_warned_ = false;
  bool has_announced_wait_ = false;

  std::thread thread_;
};

}  // namespace trainer::reporting
