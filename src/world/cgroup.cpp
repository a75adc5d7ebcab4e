#include "world/cgroup.h"

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>

#include "world/system_file.h"

namespace trainer::world {
namespace {

namespace fs = std::filesystem;

// cgroup version 2: "0::/path" names the group below the mount; the limits of all its ancestors apply too.
void for_each_group(const CgroupFiles& files, const std::function<void(const fs::path& folder)>& visit) {
  std::istringstream lines(read_system_file(files.groups));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("0::")) continue;
    fs::path group = line.substr(3);
    while (true) {
      visit(files.mount / group.relative_path());
      if (group == group.parent_path()) break;
      group = group.parent_path();
    }
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

// `version1`: the group of a container, as seen from inside it.
std::optional<uint64_t> least_limit(const CgroupFiles& files, const char* version2, const char* version1) {
  Least<uint64_t> least;
  for_each_group(files, [&](const fs::path& folder) { least.take(parse_limit(read_system_file(folder / version2))); });
  least.take(parse_limit(read_system_file(files.mount / version1)));
  return least.value();
}

}  // namespace

std::optional<int> cgroup_cpus(const CgroupFiles& files) {
  Least<int> least;
  for_each_group(files, [&](const fs::path& folder) { least.take(parse_cpu_max(read_system_file(folder / "cpu.max"))); });
  const auto version1 = files.mount / "cpu";
  least.take(parse_cpu_max(read_system_file(version1 / "cpu.cfs_quota_us") + " " + read_system_file(version1 / "cpu.cfs_period_us")));
  return least.value();
}

std::optional<uint64_t> cgroup_memory(const CgroupFiles& files) { return least_limit(files, "memory.max", "memory/memory.limit_in_bytes"); }

std::optional<uint64_t> cgroup_processes(const CgroupFiles& files) { return least_limit(files, "pids.max", "pids/pids.max"); }

std::optional<int> parse_cpu_max(std::string_view text) {
  std::istringstream stream{std::string(text)};
  double quota = 0;
  double period = 0;
  if (!(stream >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return std::max(1, static_cast<int>(quota / period));
}

}  // namespace trainer::world
