#include "base/program.h"

#include <limits.h>
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "trainer/error.h"

namespace trainer {
namespace {

// Returns 0 if the file can be executed, else the errno with the reason.
int check_executable(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    const int error = check_executable(name);
    if (error != 0) throw Error(std::generic_category().message(error));
    return name;
  }
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    // An empty or relative one means the current folder, where another user may have put a program of this name.
    if (!folder.starts_with('/')) continue;
    auto candidate = (std::filesystem::path(folder) / name).string();
    if (check_executable(candidate) == 0) return candidate;
  }
  throw Error("it is not in any absolute folder of PATH");
}

std::string own_program() {
  std::error_code error;
  const auto file = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) return file.string();
  throw Error("cannot read /proc/self/exe: " + error.message() + "; mount /proc (mount -t proc proc /proc), which this program needs");
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::vector<std::string> inherited_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  return variables;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const auto& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

pid_t start_program(const std::string& file, const std::vector<std::string>& arguments, int input) {
  auto environment = inherited_environment();
  std::erase_if(environment, [](const std::string& variable) { return variable.starts_with("TRAINER_LAUNCHER_"); });
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  // Closes the descriptors that a launcher has passed to this process, which are not close-on-exec.
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  sigset_t none, ignored_here;
  sigemptyset(&none);
  sigemptyset(&ignored_here);
  sigaddset(&ignored_here, SIGPIPE);
  sigaddset(&ignored_here, SIGXFSZ);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &ignored_here);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  pid_t process = -1;
  const int error =
      posix_spawn(&process, file.c_str(), &actions, &attributes, pointers_to(arguments).data(), pointers_to(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw Error(std::generic_category().message(error));
  return process;
}

}  // namespace trainer
