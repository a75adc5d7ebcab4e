#pragma once
// The program of logging.command, which receives the events of a run as lines on its standard input.

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/log.h"

namespace trainer::reporting {

struct EventCommandOptions {
  std::vector<std::string> command;                               // the program, looked up as by a shell, and its arguments; not empty
  std::string place;                                              // the beginning of messages: "x.yaml:3:14: logging.command"
  std::chrono::milliseconds patience = std::chrono::seconds(60);  // how long finish() waits for the program's end
  size_t most_bytes = size_t{4} << 20;                            // of lines that do not fit into the pipe to the program
};

// Throws UsageError, which begins with `place`, if the program cannot be found or executed. Returns its path.
std::string find_event_command(const std::string& program, const std::string& place);

// If the program ends or does not read, the caller is neither stopped nor slowed down: a warning is logged once, and lines that cannot be
// sent are dropped. What the program prints goes to standard error. The program runs in its own process group, so that Ctrl-C in a terminal
// does not end it before it has received the last events. SIGPIPE must be ignored.
class EventCommand {
 public:
  // Starts the program; throws UsageError if that fails. `logger` must outlive this object.
  EventCommand(EventCommandOptions options, Logger& logger);
  ~EventCommand() { finish(options_.patience); }
  EventCommand(const EventCommand&) = delete;
  EventCommand& operator=(const EventCommand&) = delete;

  // `line` has no newline. Does not wait for the program to read it.
  void send(std::string_view line);
  // Sends the waiting lines to the program, closes its input and waits for its end; terminates it if that takes longer than `most` or the
  // options' patience.
  void finish(std::chrono::milliseconds most);

 private:
  void write_waiting();
  void terminate(std::chrono::milliseconds patience);
  bool ends_within(std::chrono::milliseconds duration);
  void warn_of_end(const std::string& what);

  EventCommandOptions options_;
  Logger& logger_;
  pid_t process_ = -1;  // -1: it has ended
  int status_ = 0;      // once it has ended
  Descriptor input_;
  std::string waiting_;  // lines that are not written to the pipe yet, the first possibly in part
  bool is_finishing_ = false;
  bool has_dropped_ = false;
  bool has_warned_ = false;
};

}  // namespace trainer::reporting
