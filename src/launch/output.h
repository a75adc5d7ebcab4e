#pragma once
// What one child process says on its stderr.

#include <deque>
#include <string>
#include <vector>

namespace trainer::launch {

// Hands on whole lines as they come, each with `prefix` unless it begins with it, and keeps the last ones.
class Output {
 public:
  // `descriptor`: the pipe's end to read, not blocking, owned from now on; -1: nothing is read here.
  Output(int descriptor, std::string prefix);
  ~Output();
  Output(Output&& other) noexcept;
  Output& operator=(Output&& other) noexcept;

  // -1 when nothing more will come.
  int descriptor() const { return descriptor_; }
  // Reads what is there.
  void forward();
  // Reads to the end, or until nothing is there: a process that the child has left behind may hold the pipe.
  void finish();
  const std::deque<std::string>& last_lines() const { return last_lines_; }

 private:
  void take_lines();
  void say(const std::string& line);
  void close();

  int descriptor_;
  std::string prefix_;
  std::string rest_;  // of a line whose end has not come yet
  std::deque<std::string> last_lines_;
};

}  // namespace trainer::launch
