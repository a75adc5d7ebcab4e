#include "launch/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace trainer::launch {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

[[noreturn]] void fail(const std::string& program, int reason) {
  throw Error("cannot start " + program + ": " + std::generic_category().message(reason));
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// After fork, in the child: only what is safe in a signal handler, since a thread that does not live here may have held any lock.
[[noreturn]] void become(const char* program, char* const* arguments, char* const* environment, const sigset_t& signal_mask, pid_t parent,
                         int stdin_descriptor, int report_descriptor) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have ended before that.
  if (getppid() != parent) _exit(1);
  setpgid(0, 0);
  sigprocmask(SIG_SETMASK, &signal_mask, nullptr);
  if (dup2(stdin_descriptor, STDIN_FILENO) >= 0) execve(program, arguments, environment);
  const int reason = errno;
  [[maybe_unused]] const auto written = write(report_descriptor, &reason, sizeof reason);
  _exit(127);
}

}  // namespace

pid_t start_process(const std::string& program, const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                    const sigset_t& signal_mask) {
  std::vector<std::string> all_arguments = {program};
  all_arguments.insert(all_arguments.end(), arguments.begin(), arguments.end());
  const auto argument_pointers = pointers(all_arguments);
  const auto environment_pointers = pointers(environment);
  const Descriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  int report[2];
  if (null.number() < 0 || pipe2(report, O_CLOEXEC) != 0) fail(program, errno);
  const Descriptor report_out(report[0]);
  Descriptor report_in(report[1]);

  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) fail(program, errno);
  if (child == 0) {
    become(program.c_str(), argument_pointers.data(), environment_pointers.data(), signal_mask, parent, null.number(), report_in.number());
  }
  report_in.close();
  // Ends without a byte when execve closes the other end.
  int reason = 0;
  ssize_t length = 0;
  do {
    length = read(report_out.number(), &reason, sizeof reason);
  } while (length < 0 && errno == EINTR);
  if (length == sizeof reason) {
    waitpid(child, nullptr, 0);
    fail(program, reason);
  }
  return child;
}

}  // namespace trainer::launch
