#include "world/cgroup.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <sstream>
#include <string>

#include "world/system_file.h"

namespace trainer::world {
namespace {

namespace fs = std::filesystem;

void visit_with_parents(const fs::path& mount, fs::path group, const std::function<void(const fs::path& folder)>& visit) {
  while (true) {
    visit(mount / group.relative_path());
    if (group == group.parent_path()) return;
    group = group.parent_path();
  }
}

// Calls `visit` with the folder of this process's group and with those of its ancestors, whose limits apply too. A line of files.groups is
// "0::/path" for version 2, and "4:cpu,cpuacct:/path" for `controller` of version 1, which has a mount of its own. A container may see the
// path from outside of it, and its own group at the mount: there is no folder of that path then, and its ancestor is the mount.
void for_each_group(const CgroupFiles& files, const std::string& controller, const std::function<void(const fs::path& folder)>& visit) {
  std::istringstream lines(read_system_file(files.groups));
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    const auto group = line.substr(second + 1);
    if (controllers == ",,") visit_with_parents(files.mount, group, visit);
    if (controllers.find(',' + controller + ',') != std::string::npos) visit_with_parents(files.mount / controller, group, visit);
  }
}

template <class Number>
class Least {
 public:
  void take(std::optional<Number> limit) {
    if (limit) least_ = std::min(least_.value_or(*limit), *limit);
  }
  std::optional<Number> value() const { return least_; }

 private:
  std::optional<Number> least_;
};

// Empty for "max", for the number by which version 1 says that there is no limit, and for a file that does not exist.
std::optional<uint64_t> parse_limit(const std::string& text) {
  constexpr uint64_t kUnlimited = uint64_t{1} << 60;
  std::istringstream stream(text);
  uint64_t limit = 0;
  if (!(stream >> limit) || limit >= kUnlimited) return std::nullopt;
  return limit;
}

// `names`: of the files that hold the limit in version 1 and in version 2.
std::optional<uint64_t> least_limit(const CgroupFiles& files, const char* controller, std::initializer_list<const char*> names) {
  Least<uint64_t> least;
  for_each_group(files, controller, [&](const fs::path& folder) {
    for (const auto* name : names) least.take(parse_limit(read_system_file(folder / name)));
  });
  return least.value();
}

}  // namespace

std::optional<int> cgroup_cpus(const CgroupFiles& files) {
  Least<int> least;
  for_each_group(files, "cpu", [&](const fs::path& folder) {
    least.take(parse_cpu_max(read_system_file(folder / "cpu.max")));
    least.take(parse_cpu_max(read_system_file(folder / "cpu.cfs_quota_us") + " " + read_system_file(folder / "cpu.cfs_period_us")));
  });
  return least.value();
}

std::optional<uint64_t> cgroup_memory(const CgroupFiles& files) {
  return least_limit(files, "memory", {"memory.max", "memory.limit_in_bytes"});
}

std::optional<uint64_t> cgroup_processes(const CgroupFiles& files) { return least_limit(files, "pids", {"pids.max"}); }

std::optional<int> parse_cpu_max(std::string_view text) {
  std::istringstream stream{std::string(text)};
  double quota = 0;
  double period = 0;
  if (!(stream >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return std::max(1, static_cast<int>(quota / period));
}

}  // namespace trainer::world
