// The system's part of the planted faults: a file that cannot be opened (action "unreadable"), mapped data that is lost, memory that runs
// out. In the launcher, each child's process number and exit code are appended to the file that TRAINER_TEST_EXITS names.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

#include "faults.h"

namespace {

bool is_data(std::string_view path) { return path.ends_with(".bin"); }

}  // namespace

void lose_mapped_data() {
  // Of no length, so that every page lies behind its end.
  const int nothing = memfd_create("lost.bin", MFD_CLOEXEC);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (!is_data(line)) continue;
    size_t begin = 0, end = 0;
    char dash = '-';
    std::istringstream(line) >> std::hex >> begin >> dash >> end;
    mmap(reinterpret_cast<void*>(begin), end - begin, PROT_READ, MAP_SHARED | MAP_FIXED, nothing, 0);
  }
}

void limit_memory() {
  size_t num_pages = 0;
  std::ifstream("/proc/self/statm") >> num_pages;
  const rlim_t bytes = num_pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
}

extern "C" int open(const char* path, int flags, ...) {
  using Open = int (*)(const char*, int, ...);
  static const auto real = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "open"));
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = va_arg(arguments, mode_t);
  va_end(arguments);
  const Fault& fault = planted_fault();
  if (fault.number == 0 && fault.phase == "start" && is_data(path)) {
    if (fault.action == "unreadable") {
      errno = EIO;
      return -1;
    }
    act(fault.action);
  }
  return real(path, flags, mode);
}

extern "C" pid_t waitpid(pid_t process, int* status, int options) {
  using Wait = pid_t (*)(pid_t, int*, int);
  static const auto real = reinterpret_cast<Wait>(dlsym(RTLD_NEXT, "waitpid"));
  const pid_t found = real(process, status, options);
  const char* file = std::getenv("TRAINER_TEST_EXITS");
  if (file == nullptr || found <= 0 || status == nullptr || WIFSTOPPED(*status) || WIFCONTINUED(*status)) return found;
  std::ofstream(file, std::ios::app) << found << ' ' << (WIFSIGNALED(*status) ? 128 + WTERMSIG(*status) : WEXITSTATUS(*status)) << '\n';
  return found;
}
