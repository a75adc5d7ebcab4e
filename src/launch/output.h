#pragma once
// The stderr of one child process.

#include <deque>
#include <string>

#include "base/descriptor.h"

namespace trainer::launch {

// Forwards whole lines to stderr, each with `prefix` unless it already begins with it, and keeps the last ones.
class Output {
 public:
  // `pipe`: the non-blocking read end; without one, nothing is read.
  Output(Descriptor pipe, std::string prefix);

  // -1 after the end of the output.
  int descriptor() const { return pipe_.number(); }
  // Reads and forwards the available output without waiting.
  void forward();
  // Forwards the rest and closes the pipe. Does not wait for its end: a process that the child has started may still hold it open.
  void finish();
  const std::deque<std::string>& last_lines() const { return last_lines_; }

 private:
  void take_lines();
  void say(const std::string& line);

  Descriptor pipe_;
  std::string prefix_;
  std::string rest_;  // the last, incomplete line
  std::deque<std::string> last_lines_;
};

}  // namespace trainer::launch
