#include "launch/output.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace trainer::launch {
namespace {

constexpr size_t kKeptLines = 5;
// Longer lines are forwarded in pieces.
constexpr size_t kLongestLine = 64 * 1024;

}  // namespace

Output::Output(Descriptor pipe, std::string prefix) : pipe_(std::move(pipe)), prefix_(std::move(prefix)) {}

void Output::forward() {
  std::array<char, 4096> buffer;
  while (descriptor() >= 0) {
    const auto length = read(descriptor(), buffer.data(), buffer.size());
    if (length < 0 && errno == EINTR) continue;
    if (length < 0 && errno == EAGAIN) return;
    if (length <= 0) {
      pipe_.close();
      if (!rest_.empty()) say(std::exchange(rest_, {}));
      return;
    }
    rest_.append(buffer.data(), static_cast<size_t>(length));
    take_lines();
  }
}

void Output::take_lines() {
  size_t begin = 0;
  for (size_t end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', begin)) {
    say(rest_.substr(begin, end - begin));
    begin = end + 1;
  }
  rest_.erase(0, begin);
  if (rest_.size() > kLongestLine) say(std::exchange(rest_, {}));
}

void Output::finish() {
  forward();
  pipe_.close();
  if (!rest_.empty()) say(std::exchange(rest_, {}));
}

void Output::say(const std::string& line) {
  const auto text = (line.starts_with(prefix_) ? "" : prefix_) + line + '\n';
  std::string_view rest = text;
  // Failures are ignored: the reader of stderr may have ended, but the processes must continue.
  write_all(STDERR_FILENO, rest);
  last_lines_.push_back(line);
  if (last_lines_.size() > kKeptLines) last_lines_.pop_front();
}

}  // namespace trainer::launch
