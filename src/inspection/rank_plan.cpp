#include "inspection/rank_plan.h"

#include <algorithm>

namespace trainer::inspection {

RankPlan make_rank_plan(const engine::Plan& plan) {
  RankPlan result;
  const auto part = engine::rest_of_epoch(plan, 0);
  for (int rank = 0; rank < plan.world_size; ++rank) {
    RankGroup group{.first_rank = rank, .last_rank = rank, .num_samples = 0, .batches = {}};
    for (int64_t batch = 0; batch < part.num_batches; ++batch) {
      const int64_t end = engine::samples_before_batch(plan, part, rank, batch + 1);
      const int64_t size = end - group.num_samples;
      group.num_samples = end;
      if (group.batches.empty() || group.batches.back().size != size) group.batches.push_back({.count = 0, .size = size});
      ++group.batches.back().count;
    }
    const bool is_like_last = !result.groups.empty() && result.groups.back().batches == group.batches;
    if (is_like_last) {
      result.groups.back().last_rank = rank;
    } else {
      result.groups.push_back(std::move(group));
    }
  }
  const int64_t num_taken = part.num_steps > 0 ? engine::end_sample_of(plan, part, part.first_step + part.num_steps - 1) : 0;
  result.num_repeated = std::max<int64_t>(num_taken - plan.samples_per_epoch, 0);
  result.num_left_out = std::max<int64_t>(plan.samples_per_epoch - num_taken, 0);
  return result;
}

}  // namespace trainer::inspection
