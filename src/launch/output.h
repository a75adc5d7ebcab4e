#pragma once
// What one child process says on its stderr.

#include <deque>
#include <string>

#include "base/descriptor.h"

namespace trainer::launch {

// Hands on whole lines as they come, each with `prefix` unless it begins with it, and keeps the last ones.
class Output {
 public:
  // `pipe`: its end to read, not blocking; none: nothing is read here.
  Output(Descriptor pipe, std::string prefix);

  // -1 when nothing more will come.
  int descriptor() const { return pipe_.number(); }
  // Reads what is there.
  void forward();
  // Reads to the end, or until nothing is there: a process that the child has left behind may hold the pipe.
  void finish();
  const std::deque<std::string>& last_lines() const { return last_lines_; }

 private:
  void take_lines();
  void say(const std::string& line);

  Descriptor pipe_;
  std::string prefix_;
  std::string rest_;  // of a line whose end has not come yet
  std::deque<std::string> last_lines_;
};

}  // namespace trainer::launch
