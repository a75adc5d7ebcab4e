#include "distributed/supervision/straggler.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace trainer::supervision {
namespace {

using distributed::OwnSeconds;

// The least excess that is reported, as a fraction of the interval. A smaller one is not worth fixing, and would cause false alarms when
// steps take microseconds.
constexpr double kLeastExcess = 0.1;
constexpr double kLeastSeconds = 1;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// The seconds of a rank, and the median of the others.
struct Work {
  double own = 0;
  double others = 0;
  double excess() const { return own - others; }
};

// Compares one rank with the others in the kind of work that `seconds_of` selects.
Work compare(std::span<const OwnSeconds> ranks, size_t rank, const std::function<double(const OwnSeconds&)>& seconds_of) {
  std::vector<double> others;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i != rank) others.push_back(seconds_of(ranks[i]));
  }
  return {.own = seconds_of(ranks[rank]), .others = median(std::move(others))};
}

}  // namespace

std::optional<std::string> describe_straggler(std::span<const OwnSeconds> own, std::span<const distributed::RankInfo> ranks, double seconds,
                                              double ratio, int64_t num_steps) {
  const auto rank = static_cast<size_t>(std::ranges::max_element(own, {}, &OwnSeconds::total) - own.begin());
  const auto total = compare(own, rank, &OwnSeconds::total);
  if (total.own <= ratio * total.others || total.excess() < kLeastExcess * seconds) return std::nullopt;
  const auto data = compare(own, rank, &OwnSeconds::data);
  const auto compute = compare(own, rank, &OwnSeconds::compute);
  const bool by_data = data.excess() > compute.excess();
  const auto& part = by_data ? data : compute;
  const auto per_step = [num_steps](double time) { return fmt::format("{:.3g} s", time / static_cast<double>(num_steps)); };
  return fmt::format(
      "rank {} ({}, {}) is slow: its own work takes {} per step, while the median of the other ranks is {}, so they wait {} for it; "
      "the largest difference is in its {} time ({}, other ranks {}); {}",
      rank, to_string(ranks[rank]), ranks[rank].device, per_step(total.own), per_step(total.others), per_step(total.excess()),
      by_data ? "data" : "compute", per_step(part.own), per_step(part.others),
      by_data ? "check the disk and memory of that host, or raise dataloader.num_workers"
              : "check whether its host runs other programs, has fewer cores than the other hosts, or runs at a lower clock rate");
}

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
  auto straggler = describe_straggler(own_, ranks_, seconds_, ratio_, steps_done - steps_compared_);
  steps_compared_ = steps_done;
  seconds_ = 0;
  own_.assign(own_.size(), {});
  return straggler;
}

}  // namespace trainer::supervision
