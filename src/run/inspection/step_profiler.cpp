#include "run/inspection/step_profiler.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "run/inspection/inspect.h"

namespace trainer::inspection {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

// Entries that are not operations; Python's profiler skips the same ones.
bool is_skipped(const profiler::KinetoEvent& event) {
  constexpr std::array<std::string_view, 4> kNames = {"[memory]", "aten::is_leaf", "aten::output_nr", "aten::_version"};
  return event.isHiddenEvent() || event.isAsync() || event.startThreadId() != event.endThreadId() ||
         std::ranges::find(kNames, event.name()) != kNames.end();
}

std::vector<ProfiledEvent> read_events(const profiler::ProfilerResult& result) {
  std::vector<ProfiledEvent> events;
  for (const auto& event : result.events()) {
    const bool is_on_gpu = event.deviceType() != c10::DeviceType::CPU;
    if (!is_on_gpu && is_skipped(event)) continue;
    events.push_back({.name = event.name(),
                      .thread = event.startThreadId(),
                      .start_ns = static_cast<int64_t>(event.startNs()),
                      .end_ns = static_cast<int64_t>(event.endNs()),
                      .is_on_gpu = is_on_gpu,
                      .id = event.correlationId(),
                      .caller = event.linkedCorrelationId()});
  }
  return events;
}

}  // namespace

StepProfiler::StepProfiler(int64_t first, int64_t last, bool uses_gpu, std::filesystem::path trace_file, Logger& logger)
    : first_(first), last_(last), uses_gpu_(uses_gpu), trace_file_(std::move(trace_file)), logger_(logger) {}

StepProfiler::~StepProfiler() {
  range_.reset();
  if (is_profiling_) profiler::disableProfiler();
}

void StepProfiler::before_step(int64_t step) {
  is_before_first_ = step < first_;
  if (step >= first_ && step < last_ && !is_profiling_) begin(step);
  if (!is_profiling_) return;
  // Counted from 1, as on the console.
  step_name_ = kStepPrefix + std::to_string(step + 1);
  range_.emplace(at::RecordScope::USER_SCOPE);
  range_->before(step_name_);
}

void StepProfiler::after_step(int64_t step) {
  if (!is_profiling_) return;
  range_.reset();
  end_ = step + 1;
  if (end_ == last_) write();
}

void StepProfiler::begin(int64_t step) {
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (uses_gpu_) activities.insert(ActivityType::CUDA);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  is_profiling_ = true;
  begin_ = step;
  end_ = step;
}

void StepProfiler::write() {
  is_profiling_ = false;
  const auto result = profiler::disableProfiler();
  std::error_code failure;
  std::filesystem::remove(trace_file_, failure);
  result->save(trace_file_.string());
  const bool is_written = std::filesystem::file_size(trace_file_, failure) > 0 && !failure;
  if (!is_written)
    logger_.warn("{} cannot be written; training continues, and the log contains the table of the profile", trace_file_.string());
  logger_.info("profile of steps {} to {}{}", begin_ + 1, end_, is_written ? ", in " + trace_file_.string() : "");
  constexpr size_t kNumOperations = 10;
  for (const auto& line : to_lines(sum_costs(read_events(*result)), kNumOperations)) logger_.info("  {}", line);
}

void StepProfiler::finish() {
  range_.reset();
  if (is_profiling_) write();
  if (is_before_first_)
    logger_.info("logging.profile_steps: nothing was profiled, because training ended before step {}; choose earlier steps", first_ + 1);
}

}  // namespace trainer::inspection
