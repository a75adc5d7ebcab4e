// Faults in system calls: a file that cannot be opened (action "unreadable"), lost mapped data, memory that runs out, and points of saving
// a checkpoint. In the launcher, the number of each ended child (in the order of their start) and its exit code are appended to the file
// TRAINER_TEST_EXITS.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "faults.h"

namespace {

bool is_data(std::string_view path) { return path.ends_with(".bin"); }

bool is_checkpoint(std::string_view path) { return path.find("/step_") != path.npos && path.find(".pt.tmp") != path.npos; }

std::string path_of(int descriptor) {
  std::error_code unknown;
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), unknown).string();
}

// Called when a save reaches this point; returns true if the system call has to fail.
bool reach(std::string_view point) {
  const Fault& fault = planted_fault();
  static int num_times = 0;
  if (fault.number < 0 || fault.phase != point || num_times++ != fault.number) return false;
  if (fault.action == "full") {
    errno = ENOSPC;
    return true;
  }
  act(fault.action);
  return false;
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

void lose_mapped_data() {
  // Maps an empty file in the place of each data file, so that every page is past its end.
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
  static const auto real = next<int (*)(const char*, int, ...)>("open");
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
  const int descriptor = real(path, flags, mode);
  if (is_checkpoint(path) && (flags & O_CREAT) != 0) reach("save_opened");
  return descriptor;
}

extern "C" ssize_t write(int descriptor, const void* bytes, size_t size) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  // The largest tensor of the tested networks has more bytes than this.
  constexpr size_t kLargeTensor = 100'000;
  static std::string last_file;
  const auto file = size < kLargeTensor ? "" : path_of(descriptor);
  if (!is_checkpoint(file) || file == last_file) return real(descriptor, bytes, size);
  last_file = file;
  const ssize_t written = real(descriptor, bytes, size / 2);
  return reach("save_half_written") ? -1 : written;
}

extern "C" int fsync(int descriptor) {
  static const auto real = next<int (*)(int)>("fsync");
  if (is_checkpoint(path_of(descriptor))) reach("save_before_fsync");
  return real(descriptor);
}

extern "C" int rename(const char* from, const char* to) {
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  if (is_checkpoint(from)) reach("save_before_rename");
  return real(from, to);
}

extern "C" int symlink(const char* target, const char* link) {
  static const auto real = next<int (*)(const char*, const char*)>("symlink");
  if (std::string_view(target) != "probe") reach("save_before_link");
  return real(target, link);
}

extern "C" pid_t waitpid(pid_t process, int* status, int options) {
  static const auto real = next<pid_t (*)(pid_t, int*, int)>("waitpid");
  // The launcher first checks all children in the order of their start. Process ids do not have this order after they have wrapped around.
  static std::vector<pid_t> children;
  const auto child = std::ranges::find(children, process);
  const auto number = child - children.begin();
  if (child == children.end()) children.push_back(process);
  const pid_t found = real(process, status, options);
  const char* file = std::getenv("TRAINER_TEST_EXITS");
  if (file == nullptr || found <= 0 || status == nullptr || WIFSTOPPED(*status) || WIFCONTINUED(*status)) return found;
  std::ofstream(file, std::ios::app) << number << ' ' << (WIFSIGNALED(*status) ? 128 + WTERMSIG(*status) : WEXITSTATUS(*status)) << '\n';
  return found;
}
