#include "base/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/file.h"
#include "base/signal.h"
#include "base/text.h"
#include "trainer/error.h"

namespace trainer {

std::string read_standard_input(size_t max_bytes) {
  const FileAccess access("reading", kStandardInputName);
  const std::string failed = std::string("cannot read ") + kStandardInputName + ": ";
  std::string content;
  std::array<char, size_t{1} << 16> buffer;
  const auto check_stop = [] {
    if (stop_signal() != 0) throw Error(std::string("stopped on request while waiting for ") + kStandardInputName, ExitCode::kStopped);
  };
  while (true) {
    constexpr int kMilliseconds = 100;
    pollfd wanted{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    while (::poll(&wanted, 1, kMilliseconds) <= 0) check_stop();
    const auto length = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (length < 0 && errno != EINTR && errno != EAGAIN) throw Error(failed + std::strerror(errno));
    if (length == 0) {
      // The input may have ended because its writer was stopped too.
      check_stop();
      return content;
    }
    if (length > 0) content.append(buffer.data(), static_cast<size_t>(length));
    if (content.size() > max_bytes) throw Error(failed + "it has more than " + format_bytes(max_bytes));
  }
}

namespace {

// Whether a write to the standard output has failed; later text is dropped.
bool is_lost = false;

void lose() {
  const int reason = errno;
  is_lost = true;
  if (reason == EPIPE) return;
  throw Error(std::string("cannot write to the standard output: ") +
              (reason == EBADF ? "it is closed; to discard the output, redirect it to /dev/null" : std::strerror(reason)));
}

}  // namespace

void print_text(std::string_view text) {
  if (!is_lost && std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) lose();
}

void flush_standard_output() {
  if (is_lost) return;
  if (std::fflush(stdout) != 0) return lose();
  // A network file system writes a file's data, and reports errors, when any descriptor of the file is closed, so a copy is closed here.
  const int copy = ::dup(STDOUT_FILENO);
  if (copy < 0 || ::close(copy) != 0) lose();
}

bool is_standard_output_closed() {
  const int flags = ::fcntl(STDOUT_FILENO, F_GETFL);
  return flags < 0 || (flags & O_ACCMODE) == O_RDONLY;
}

}  // namespace trainer
