#include "run/inspection/layer_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "nn/layers.h"

namespace trainer::inspection {
namespace {

std::string kind_of(const torch::nn::Module& layer) {
  const auto& name = layer.name();
  const auto scope = name.rfind("::");
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

bool is_frozen(const torch::nn::Module& layer) {
  const auto parameters = layer.parameters(/*recurse=*/false);
  return !parameters.empty() && std::ranges::none_of(parameters, [](const torch::Tensor& parameter) { return parameter.requires_grad(); });
}

// `output`: of one sample. A weight of two or more dimensions is that of a convolution or linear layer; each output is the sum of as many
// products as it has values for one output channel.
int64_t flops_of(const torch::nn::Module& layer, const torch::Tensor& output) {
  const auto parameters = layer.named_parameters(/*recurse=*/false);
  const auto buffers = layer.named_buffers(/*recurse=*/false);
  const auto* weight = parameters.contains("weight") ? &parameters["weight"] : buffers.contains("weight") ? &buffers["weight"] : nullptr;
  if (weight == nullptr || weight->dim() < 2) return 0;
  return 2 * output.numel() * (weight->numel() / weight->size(0));
}

}  // namespace

LayerTable make_layer_table(models::Model& model, const torch::Tensor& sample) {
  std::map<const torch::nn::Module*, std::string> names;
  for (const auto& module : model.named_modules("", /*include_self=*/false)) names[module.value().get()] = module.key();
  LayerTable table;
  std::set<const torch::nn::Module*> seen;
  const nn::LayerObserver observer([&](const torch::nn::Module& layer, const torch::Tensor& output) {
    LayerRow row{.name = names[&layer],
                 .kind = kind_of(layer),
                 .output_shape = output.sizes().slice(1).vec(),
                 .num_parameters = 0,
                 .is_frozen = is_frozen(layer),
                 .flops = flops_of(layer, output)};
    if (seen.insert(&layer).second) {
      for (const auto& parameter : layer.parameters(/*recurse=*/false)) row.num_parameters += parameter.numel();
    }
    table.flops += row.flops;
    table.rows.push_back(std::move(row));
  });
  const torch::NoGradGuard no_grad;
  model.eval();
  model.forward(sample);
  model.train();
  for (const auto& parameter : model.parameters()) {
    table.num_parameters += parameter.numel();
    if (parameter.requires_grad()) table.num_trained += parameter.numel();
  }
  return table;
}

namespace {

constexpr size_t kLongestName = 60;

// Calls of the driver are recorded by another part of the profiler, which numbers threads in its own way.
void move_to_threads_of_callers(std::vector<ProfiledEvent>& events) {
  std::unordered_map<uint64_t, uint64_t> thread_of;
  for (const auto& event : events) {
    if (!event.is_on_gpu && event.caller == 0) thread_of[event.id] = event.thread;
  }
  for (auto& event : events) {
    if (event.is_on_gpu || event.caller == 0) continue;
    const auto found = thread_of.find(event.caller);
    if (found != thread_of.end()) event.thread = found->second;
  }
}

// Outer operations before those within them.
bool starts_before(const ProfiledEvent& a, const ProfiledEvent& b) {
  if (a.thread != b.thread) return a.thread < b.thread;
  return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns > b.end_ns;
}

// Of each event on the CPU, in the order of `events`, which is that of starts_before().
std::vector<int64_t> times_without_inner(const std::vector<ProfiledEvent>& events) {
  std::vector<int64_t> times(events.size(), 0);
  std::vector<size_t> open;  // the operations around the current one, outermost first
  for (size_t i = 0; i < events.size(); ++i) {
    const auto& event = events[i];
    if (event.is_on_gpu) continue;
    while (!open.empty() && (events[open.back()].thread != event.thread || events[open.back()].end_ns <= event.start_ns)) open.pop_back();
    const int64_t duration = event.end_ns - event.start_ns;
    times[i] += duration;
    if (!open.empty()) times[open.back()] -= duration;
    open.push_back(i);
  }
  return times;
}

std::string title_of(const ProfiledEvent& event) { return event.name.starts_with(kStepPrefix) ? kOutside : event.name; }

double percent_of(int64_t part, int64_t whole) { return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole); }

}  // namespace

std::vector<OperationCost> sum_costs(std::vector<ProfiledEvent> events) {
  move_to_threads_of_callers(events);
  std::ranges::stable_sort(events, starts_before);
  const auto times = times_without_inner(events);
  std::unordered_map<uint64_t, int64_t> gpu_time_of;
  for (const auto& event : events) {
    if (event.is_on_gpu && event.caller != 0) gpu_time_of[event.caller] += event.end_ns - event.start_ns;
  }
  std::map<std::string, OperationCost> by_name;
  for (size_t i = 0; i < events.size(); ++i) {
    const auto& event = events[i];
    if (event.is_on_gpu) continue;
    auto& cost = by_name[title_of(event)];
    ++cost.num_calls;
    cost.cpu_ns += times[i];
    const auto gpu_time = gpu_time_of.find(event.id);
    if (event.caller == 0 && gpu_time != gpu_time_of.end()) cost.gpu_ns += gpu_time->second;
  }
  std::vector<OperationCost> costs;
  for (auto& [name, cost] : by_name) {
    cost.name = name;
    costs.push_back(std::move(cost));
  }
  std::ranges::stable_sort(costs, std::greater(), &OperationCost::cpu_ns);
  return costs;
}

std::vector<std::string> to_lines(const std::vector<OperationCost>& costs, size_t count) {
  const size_t num_lines = std::min(count, costs.size());
  int64_t cpu_total = 0;
  int64_t gpu_total = 0;
  for (const auto& cost : costs) {
    cpu_total += cost.cpu_ns;
    gpu_total += cost.gpu_ns;
  }
  size_t width = 9;
  for (size_t i = 0; i < num_lines; ++i) width = std::max(width, std::min(costs[i].name.size(), kLongestName));
  const auto with_gpu = [&](const std::string& time, const std::string& share) {
    return gpu_total == 0 ? "" : fmt::format("  {:>12}  {:>7}", time, share);
  };
  std::vector<std::string> lines = {
      fmt::format("{:<{}}  {:>7}  {:>12}  {:>7}{}", "operation", width, "calls", "self CPU", "share", with_gpu("self GPU", "share"))};
  const auto milliseconds = [](int64_t ns) { return fmt::format("{:.2f} ms", static_cast<double>(ns) / 1e6); };
  const auto percent = [](int64_t part, int64_t whole) { return fmt::format("{:.1f} %", percent_of(part, whole)); };
  for (size_t i = 0; i < num_lines; ++i) {
    const auto& cost = costs[i];
    lines.push_back(fmt::format("{:<{}}  {:>7}  {:>12}  {:>7}{}", cost.name.substr(0, kLongestName), width, cost.num_calls,
                                milliseconds(cost.cpu_ns), percent(cost.cpu_ns, cpu_total),
                                with_gpu(milliseconds(cost.gpu_ns), percent(cost.gpu_ns, gpu_total))));
  }
  return lines;
}

}  // namespace trainer::inspection
