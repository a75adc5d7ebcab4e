#include "commands/doctor/judge_network.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "distributed/addresses.h"

namespace trainer::doctor {
namespace {

std::string to_text(const Measurement& measurement, double seconds) {
  return fmt::format("{} in {:.1f} ms ({:.2f} GB/s)", format_bytes(static_cast<uint64_t>(measurement.num_bytes)), seconds * 1e3,
                     static_cast<double>(measurement.num_bytes) / seconds / 1e9);
}

std::string to_text(const Measurement& measurement) {
  return fmt::format("{}, latency {:.0f} µs", to_text(measurement, measurement.seconds), measurement.latency * 1e6);
}

double bytes_per_second(const Measurement& measurement) { return static_cast<double>(measurement.num_bytes) / measurement.seconds; }

}  // namespace

Finding judge_host_name(const std::string& name, const std::vector<std::string>& addresses) {
  if (addresses.empty()) {
    return warning(
        fmt::format("{} has no address", name),
        "add it to /etc/hosts or to the name server; runs on one host work without, runs on several need MASTER_ADDR as a number");
  }
  const auto text = fmt::format("{} is {}", name, join(addresses, ", "));
  if (std::ranges::all_of(addresses, distributed::is_loopback)) {
    return ok(text + ", a loopback address: for runs on several hosts give MASTER_ADDR a name or address that the others reach");
  }
  return ok(text);
}

Finding judge_network(const Network& network) {
  std::vector<std::string> shown;
  for (const auto& interface : network.interfaces) shown.push_back(interface.name + " " + interface.address);
  const auto all = join(shown, ", ");
  if (!network.chosen_interface.empty()) {
    const bool exists = std::ranges::find(network.interfaces, network.chosen_interface, &Interface::name) != network.interfaces.end();
    if (exists) return ok(fmt::format("{}; gloo takes {} (GLOO_SOCKET_IFNAME)", all, network.chosen_interface));
    return failed(fmt::format("GLOO_SOCKET_IFNAME={}, but this host has {}", network.chosen_interface, all),
                  "set GLOO_SOCKET_IFNAME to one of them, or unset it");
  }
  const auto source = std::ranges::find(network.interfaces, network.source, &Interface::address);
  if (!network.master_addr.empty()) {
    if (source != network.interfaces.end()) {
      return ok(fmt::format("{}; gloo takes {}, from which MASTER_ADDR={} is reached", all, source->name, network.master_addr));
    }
    return failed(fmt::format("{}; none leads to MASTER_ADDR={}", all, network.master_addr),
                  "correct MASTER_ADDR, which may be a name that this host does not know, or the routes of this host");
  }
  const auto loopback = std::ranges::find(network.interfaces, true, &Interface::is_loopback);
  if (loopback == network.interfaces.end()) {
    return failed(fmt::format("{}; no loopback interface, over which the ranks of one host meet", all.empty() ? "none" : all),
                  "bring it up: ip link set lo up");
  }
  const auto text = fmt::format("{}; gloo takes {} on one host", all, loopback->name);
  if (source == network.interfaces.end()) return ok(text + "; there is no route to other hosts");
  return ok(fmt::format("{}, and with several the one that leads to MASTER_ADDR ({} by default)", text, source->name));
}

Finding judge_gloo(const Measurement& measurement) {
  constexpr double kSlowLatency = 5e-3;
  constexpr double kSlow = 0.1e9;
  if (!measurement.problem.empty()) {
    return failed("two processes cannot train together: " + measurement.problem,
                  "correct what this message names; look for a firewall on the loopback interface, and for GLOO_SOCKET_IFNAME");
  }
  const auto text = "gloo: " + to_text(measurement);
  if (measurement.latency > kSlowLatency || bytes_per_second(measurement) < kSlow) {
    return warning(text + ": slow",
                   "look with top for other programs on these cores, and give each rank cores of its own (runtime.threads)");
  }
  return ok(text);
}

Finding judge_shared_sums(const Measurement& measurement) {
  if (!measurement.problem.empty()) return failed("in shared memory: not measured, because gloo has failed", "see the line above");
  if (measurement.shared_memory_seconds > 0) return ok("in shared memory: " + to_text(measurement, measurement.shared_memory_seconds));
  return warning("two processes cannot map each other's memory, so sums on the CPU go through gloo",
                 "start both in one container, or with --ipc=host and --pid=host");
}

Finding judge_nccl(const Measurement& measurement, int num_gpus) {
  constexpr double kSlow = 3e9;
  if (!measurement.problem.empty()) {
    return failed("NCCL does not work: " + measurement.problem,
                  "NCCL_DEBUG=INFO shows its steps; distributed.backend: gloo trains without it, more slowly");
  }
  if (num_gpus == 1) return ok("NCCL starts; with one GPU there is nothing to measure");
  const auto text = "NCCL: " + to_text(measurement);
  if (bytes_per_second(measurement) < kSlow) {
    return warning(text + ": slow", "see whether `nvidia-smi topo -m` shows a direct path, and NCCL_P2P_DISABLE is not set");
  }
  return ok(text);
}

}  // namespace trainer::doctor
