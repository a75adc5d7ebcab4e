#include "commands/doctor/checks.h"

#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <future>
#include <optional>
#include <thread>

#include "base/text.h"
#include "commands/doctor/judge.h"
#include "commands/doctor/measure.h"
#include "commands/doctor/read_host.h"
#include "launch/world/host_resources.h"

namespace trainer::doctor {
namespace {

using std::chrono::seconds;

// The time for two processes to start and measure.
constexpr seconds kMeasurementLimit{60};
constexpr seconds kDriverLimit{60};
constexpr seconds kShort{10};

// Returns nothing if there is no result within the limit; the call then continues in its thread.
template <class Function>
auto within(std::chrono::milliseconds limit, Function call) -> std::optional<decltype(call())> {
  std::packaged_task<decltype(call())()> task(std::move(call));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(limit) == std::future_status::timeout) return std::nullopt;
  return result.get();
}

std::vector<Finding> check_libtorch(const Subject& subject) {
  const auto use = subject.gpus.count() > 0 ? "with its CUDA libraries" : "without its CUDA libraries";
  return {ok(fmt::format("{}, loaded {}", TORCH_VERSION, use))};
}

std::vector<Finding> check_gloo(const Subject&) {
  const auto measurement = measure("gloo", 2, kMeasurementLimit);
  return {judge_gloo(measurement), judge_shared_sums(measurement)};
}

std::vector<Finding> check_nccl(const Subject& subject) {
  if (subject.gpus.count() == 0) return {};
  const int num_gpus = std::min(subject.gpus.count(), 2);
  return {judge_nccl(measure("nccl", num_gpus, kMeasurementLimit), num_gpus)};
}

using FindingList = std::vector<Finding>;

constexpr auto kChecks = std::to_array<Check>({
    {"LibTorch", kShort, check_libtorch},
    {"CUDA", kShort, [](const Subject& subject) { return FindingList{judge_driver(subject.gpus)}; }},
    {"GPU", kShort, [](const Subject& subject) { return judge_gpus(subject.gpus); }},
    {"links of GPUs", kShort, [](const Subject& subject) { return judge_links(subject.gpus); }},
    {"launcher", kShort, [](const Subject& subject) { return FindingList{judge_launch(read_launch(), subject.gpus.count())}; }},
    {"processor", kShort, [](const Subject&) { return FindingList{judge_cpus(read_cpus())}; }},
    {"memory", kShort, [](const Subject&) { return FindingList{judge_memory(read_memory())}; }},
    {"shared memory", kShort,
     [](const Subject& subject) { return FindingList{judge_shared_memory(read_shared_memory_size(), subject.gpus.count())}; }},
    {"open files", kShort, [](const Subject&) { return FindingList{judge_open_files(read_open_files_limit())}; }},
    {"processes", kShort, [](const Subject&) { return FindingList{judge_processes(read_processes_limit())}; }},
    {"locked memory", kShort,
     [](const Subject&) { return FindingList{judge_locked_memory(read_locked_memory_limit(), has_infiniband())}; }},
    {"host name", kShort,
     [](const Subject&) { return FindingList{judge_host_name(world::host_name(), read_addresses(world::host_name()))}; }},
    {"network", kShort, [](const Subject&) { return FindingList{judge_network(read_network())}; }},
    {"output_dir", kMeasurementLimit, [](const Subject& subject) { return FindingList{judge_disk(read_disk(subject.output_dir))}; }},
    {"image files", kShort, [](const Subject&) { return FindingList{judge_images(try_images())}; }},
    // The processes of the measurement have kMeasurementLimit, and the check then needs some time to end them.
    {"all_reduce", kMeasurementLimit + kShort, check_gloo},
    {"GPU all_reduce", kMeasurementLimit + kShort, check_nccl},
});

}  // namespace

std::span<const Check> all_checks() { return kChecks; }

std::vector<Finding> run(const Check& check, const Subject& subject) {
  try {
    auto findings = within(check.limit, [run = check.run, subject] { return run(subject); });
    if (findings) return std::move(*findings);
    return {failed(
        fmt::format("no result within {}", format_duration(check.limit)),
        "look for a file server (`df`) or a name server (`getent hosts NAME`) that does not respond, or a hanging driver (`dmesg`)")};
  } catch (const std::exception& error) {
    return {failed(error.what(), "fix the problem that the message names")};
  }
}

Gpus find_gpus() {
  auto gpus = within(kDriverLimit, read_gpus);
  if (gpus) return std::move(*gpus);
  return {.has_driver = true,
          .refusal = fmt::format("it has not responded within {}; `dmesg` may show why", format_duration(kDriverLimit)),
          .report = {}};
}

}  // namespace trainer::doctor
