#include "base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "trainer/error.h"

namespace trainer {
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
