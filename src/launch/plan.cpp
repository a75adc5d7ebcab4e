#include "launch/plan.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "base/text.h"
#include "trainer/error.h"

namespace trainer::launch {
namespace {

constexpr int kProcessesWithoutGpu = 2;
constexpr int kMostProcesses = 1024;

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const auto comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

// Accepts numbers and names such as GPU-1a2b and MIG-3c4d.
std::vector<std::string> parse_gpus(const std::string& text) {
  auto gpus = split_at_commas(text);
  for (const auto& gpu : gpus) {
    const auto is_allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '/'; };
    if (gpu.empty() || gpu.front() == '-' || !std::ranges::all_of(gpu, is_allowed)) {
      throw UsageError(fmt::format("--gpus {}: expected a list as in CUDA_VISIBLE_DEVICES, such as 0,2", text));
    }
  }
  if (std::set<std::string>(gpus.begin(), gpus.end()).size() < gpus.size()) {
    throw UsageError(fmt::format("--gpus {}: a GPU is listed twice; list each GPU once", text));
  }
  return gpus;
}

bool has_library(const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
  return library != nullptr && dlclose(library) == 0;
}

// Matches "nvidia0", but not "nvidiactl" or "nvidia-uvm".
bool is_gpu_device(const std::filesystem::directory_entry& entry) {
  const auto name = entry.path().filename().string();
  constexpr std::string_view kPrefix = "nvidia";
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  return name.starts_with(kPrefix) && name.size() > kPrefix.size() && std::all_of(name.begin() + kPrefix.size(), name.end(), is_digit);
}

// The number of GPUs of this host that this process may use.
int num_gpus_of(const Driver& driver) {
  if (!has_library(driver.library)) return 0;
  std::error_code ignored;
  const std::filesystem::directory_iterator devices(driver.devices, ignored);
  const auto num_devices = std::count_if(begin(devices), end(devices), is_gpu_device);
  std::error_code no_list;
  const std::filesystem::directory_iterator folder(driver.gpus, no_list);
  if (no_list) {
    // gVisor has the devices but not this list; the Windows Subsystem for Linux has one device for all GPUs and does not report their
    // number.
    return num_devices > 0 ? static_cast<int>(num_devices) : static_cast<int>(std::filesystem::exists(driver.devices / "dxg", ignored));
  }
  const auto num_listed = std::distance(begin(folder), end(folder));
  // The devices may not exist yet on a host that has not used a GPU since it was booted.
  return static_cast<int>(num_devices > 0 ? std::min(num_listed, num_devices) : num_listed);
}

// CUDA reads CUDA_VISIBLE_DEVICES up to the first entry that is not a GPU: "-1" or an empty one.
int num_visible_gpus(const world::Environment& environment, const Driver& driver) {
  const int num_gpus = num_gpus_of(driver);
  const auto visible = environment("CUDA_VISIBLE_DEVICES");
  if (num_gpus == 0 || !visible) return num_gpus;
  const auto gpus = split_at_commas(*visible);
  const auto end = std::ranges::find_if(gpus, [](const std::string& gpu) { return gpu.empty() || gpu.starts_with('-'); });
  return static_cast<int>(end - gpus.begin());
}

// Variables that this or another launcher sets for one process, which the started processes must not inherit. Slurm's variables of the
// allocation are kept.
constexpr std::array<std::string_view, 6> kForeignPrefixes = {"TRAINER_LAUNCHER_", "TORCHELASTIC_", "OMPI_", "PMI_", "PMIX_", "MPI_LOCAL"};
constexpr std::array<std::string_view, 15> kForeignNames = {
    "RANK",      "WORLD_SIZE", "LOCAL_RANK",      "LOCAL_WORLD_SIZE", "MASTER_ADDR",  "MASTER_PORT",   "GROUP_RANK",   "GROUP_WORLD_SIZE",
    "ROLE_RANK", "ROLE_NAME",  "ROLE_WORLD_SIZE", "SLURM_PROCID",     "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_ID"};

bool is_foreign(std::string_view name) {
  return std::ranges::find(kForeignNames, name) != kForeignNames.end() ||
         std::ranges::any_of(kForeignPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// The part of a GPU list that a process sees: the whole list, or only its own MIG device, because CUDA uses only the first one.
std::string gpus_of(const std::string& list, int local_rank) {
  const auto names = split_at_commas(list);
  const bool is_mig = std::ranges::all_of(names, [](const std::string& name) { return name.starts_with("MIG-"); });
  const auto index = static_cast<size_t>(local_rank);
  return is_mig && index < names.size() ? names[index] : list;
}

}  // namespace

SplitArguments split_arguments(std::span<const std::string> args, std::span<const std::string> flags_with_value) {
  constexpr std::array<std::string_view, 3> kFlagsWithoutValue = {"-h", "--help", kNoPython};
  SplitArguments split;
  size_t next = 0;
  while (next < args.size()) {
    const auto& word = args[next];
    const std::string_view name = std::string_view(word).substr(0, word.find('='));
    const bool has_value = std::ranges::find(flags_with_value, name) != flags_with_value.end();
    if (!has_value && std::ranges::find(kFlagsWithoutValue, word) == kFlagsWithoutValue.end()) break;
    const size_t length = has_value && name.size() == word.size() ? 2 : 1;
    for (const size_t end = std::min(next + length, args.size()); next < end; ++next) split.own.push_back(args[next]);
  }
  if (next < args.size() && args[next] == "--") ++next;
  split.trainer.assign(args.begin() + static_cast<std::ptrdiff_t>(next), args.end());
  // Another program may have options of these names.
  if (std::ranges::find(split.own, kNoPython) != split.own.end()) return split;
  for (const auto& word : split.trainer) {
    const auto name = word.substr(0, word.find('='));
    if (std::ranges::find(flags_with_value, name) == flags_with_value.end()) continue;
    throw UsageError(fmt::format("trainer launch: {} is an option of the launcher; put it before {}", name, split.trainer.front()));
  }
  return split;
}

int num_processes(const Choice& choice, const world::Environment& environment, const Driver& driver) {
  std::optional<int> num_listed;
  if (!choice.gpus.empty()) {
    num_listed = static_cast<int>(parse_gpus(choice.gpus).size());
    if (num_gpus_of(driver) == 0) {
      throw UsageError(fmt::format(
          "--gpus {}: this host has no NVIDIA GPU that this process may use (no driver, or a container that was started without "
          "GPUs); omit --gpus to train on the CPU",
          choice.gpus));
    }
  }
  const auto& word = choice.num_processes;
  if (word == "auto") {
    const int num_gpus = num_listed ? *num_listed : num_visible_gpus(environment, driver);
    return num_gpus > 0 ? num_gpus : kProcessesWithoutGpu;
  }
  const auto count = parse_number<int>(word);
  if (!count || *count < 1 || *count > kMostProcesses) {
    throw UsageError(fmt::format("--nproc-per-node {}: expected auto or a number from 1 to {}", word, kMostProcesses));
  }
  if (num_listed && *count > *num_listed) {
    throw UsageError(fmt::format(
        "--nproc-per-node {} is more than the {} of --gpus {}, but each process needs its own GPU; list more GPUs or start fewer processes",
        *count, counted(*num_listed, "GPU"), choice.gpus));
  }
  return *count;
}

std::vector<std::string> child_environment(std::span<const std::string> inherited, const world::RankEnv& rank_env,
                                           const std::string& gpus) {
  constexpr std::string_view kVisible = "CUDA_VISIBLE_DEVICES=";
  std::vector<std::string> variables;
  std::optional<std::string> visible;
  for (const auto& variable : inherited) {
    if (variable.starts_with(kVisible)) {
      visible = variable.substr(kVisible.size());
    } else if (!is_foreign(std::string_view(variable).substr(0, variable.find('=')))) {
      variables.push_back(variable);
    }
  }
  if (!gpus.empty()) visible = gpus;
  variables.push_back(fmt::format("RANK={}", rank_env.rank));
  variables.push_back(fmt::format("WORLD_SIZE={}", rank_env.world_size));
  variables.push_back(fmt::format("LOCAL_RANK={}", rank_env.local_rank));
  variables.push_back(fmt::format("LOCAL_WORLD_SIZE={}", rank_env.local_world_size));
  variables.push_back(fmt::format("GROUP_RANK={}", rank_env.rank / rank_env.local_world_size));
  variables.push_back(fmt::format("GROUP_WORLD_SIZE={}", rank_env.num_nodes));
  variables.push_back("MASTER_ADDR=" + rank_env.master_addr);
  variables.push_back(fmt::format("MASTER_PORT={}", rank_env.master_port));
  if (visible) variables.push_back(std::string(kVisible) + gpus_of(*visible, rank_env.local_rank));
  if (rank_env.restart_attempt > 0) variables.push_back(fmt::format("TORCHELASTIC_RESTART_COUNT={}", rank_env.restart_attempt));
  if (!rank_env.secret.text.empty()) variables.push_back(fmt::format("{}={}", world::kTokenVariable, rank_env.secret.text));
  if (rank_env.listen_descriptor >= 0) variables.push_back(fmt::format("{}={}", world::kListenVariable, rank_env.listen_descriptor));
  return variables;
}

FreePort::FreePort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  if (bind(descriptor(), any, size) != 0 || getsockname(descriptor(), any, &size) != 0) {
    throw Error(fmt::format("cannot bind a port of 127.0.0.1: {}; check that the loopback interface is up and ports are free",
                            std::generic_category().message(errno)));
  }
  number_ = ntohs(address.sin_port);
}

}  // namespace trainer::launch
