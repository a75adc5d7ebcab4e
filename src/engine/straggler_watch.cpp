#include "engine/straggler_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include "engine/straggler.h"
#include "world/host_resources.h"

namespace trainer::engine {
namespace {

constexpr double kLeastSeconds = 1;

}  // namespace

StragglerWatch::StragglerWatch(const Ranks& ranks, torch::Device device, double ratio)
    : ranks_(ranks),
      ratio_(ratio),
      processes_(ranks.world->all_gather_bytes(fmt::format("process {} on {}, {}", getpid(), world::host_name(), device.str()))),
      own_(processes_.size()) {
  ranks_.activity->time_own_work(device);
}

std::optional<std::string> StragglerWatch::end_interval(int64_t steps_done, double seconds) {
  const auto mine = ranks_.activity->read_own_work();
  const auto all = ranks_.world->all_gather(torch::tensor({mine.data, mine.compute}, torch::kFloat64));
  if (ranks_.world->rank() != 0) return std::nullopt;
  if (steps_judged_ == 0) {
    steps_judged_ = steps_done;
    return std::nullopt;
  }
  for (size_t rank = 0; rank < own_.size(); ++rank) {
    const auto of_rank = all[static_cast<int64_t>(rank)];
    own_[rank].data += of_rank[0].item<double>();
    own_[rank].compute += of_rank[1].item<double>();
  }
  seconds_ += seconds;
  if (seconds_ < kLeastSeconds) return std::nullopt;
  const auto straggler = find_straggler(own_, seconds_, ratio_);
  const int64_t num_steps = steps_done - steps_judged_;
  steps_judged_ = steps_done;
  seconds_ = 0;
  own_.assign(own_.size(), {});
  if (!straggler) return std::nullopt;
  return to_string(*straggler, processes_[static_cast<size_t>(straggler->rank)], num_steps);
}

}  // namespace trainer::engine
