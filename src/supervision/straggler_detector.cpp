#include "supervision/straggler_detector.h"

#include <fmt/format.h>

#include "supervision/straggler.h"

namespace trainer::supervision {
namespace {

constexpr double kLeastSeconds = 1;

}  // namespace

StragglerDetector::StragglerDetector(std::shared_ptr<distributed::ProcessGroup> world, std::shared_ptr<distributed::Activity> activity,
                                     std::vector<distributed::RankInfo> ranks, torch::Device device, double ratio)
    : world_(std::move(world)),
      activity_(std::move(activity)),
      ranks_(std::move(ranks)),
      ratio_(ratio),
      own_(static_cast<size_t>(world_->size())) {
  activity_->time_own_work(device);
}

std::optional<std::string> StragglerDetector::end_interval(int64_t steps_done, double seconds) {
  const auto mine = activity_->read_own_work();
  const auto all = world_->all_gather(torch::tensor({mine.data, mine.compute}, torch::kFloat64));
  if (world_->rank() != 0) return std::nullopt;
  if (steps_compared_ == 0) {
    steps_compared_ = steps_done;
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
  const int64_t num_steps = steps_done - steps_compared_;
  steps_compared_ = steps_done;
  seconds_ = 0;
  own_.assign(own_.size(), {});
  if (!straggler) return std::nullopt;
  const auto& rank = ranks_.at(static_cast<size_t>(straggler->rank));
  return to_string(*straggler, fmt::format("{}, {}", to_string(rank), rank.device), num_steps);
}

}  // namespace trainer::supervision
