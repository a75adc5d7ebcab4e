#include "supervision/straggler.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace trainer::supervision {
namespace {

using distributed::OwnSeconds;

// Fraction of an interval. A smaller excess is not worth fixing, and would cause false alarms for steps of microseconds.
constexpr double kLeastExcess = 0.1;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// The work selected by `seconds_of`, for a rank and for the others.
template <class SecondsOf>
Straggler::Work compare(std::span<const OwnSeconds> ranks, size_t rank, SecondsOf seconds_of) {
  std::vector<double> others;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i != rank) others.push_back(seconds_of(ranks[i]));
  }
  return {.own = seconds_of(ranks[rank]), .others = median(std::move(others))};
}

}  // namespace

std::optional<Straggler> find_straggler(std::span<const OwnSeconds> ranks, double seconds, double ratio) {
  const auto slowest = std::ranges::max_element(ranks, {}, &OwnSeconds::total);
  const auto rank = static_cast<size_t>(slowest - ranks.begin());
  const auto total = compare(ranks, rank, [](const OwnSeconds& own) { return own.total(); });
  if (total.own <= ratio * total.others || total.excess() < kLeastExcess * seconds) return std::nullopt;
  const auto data = compare(ranks, rank, [](const OwnSeconds& own) { return own.data; });
  const auto compute = compare(ranks, rank, [](const OwnSeconds& own) { return own.compute; });
  const bool by_data = data.excess() > compute.excess();
  return Straggler{.rank = static_cast<int>(rank),
                   .total = total,
                   .cause = by_data ? Straggler::Cause::kData : Straggler::Cause::kCompute,
                   .part = by_data ? data : compute};
}

std::string to_string(const Straggler& straggler, const std::string& process, int64_t num_steps) {
  const auto a_step = [num_steps](double seconds) { return fmt::format("{:.3g} s", seconds / static_cast<double>(num_steps)); };
  const bool by_data = straggler.cause == Straggler::Cause::kData;
  return fmt::format(
      "rank {} ({}) is slow: its own work takes {} a step, that of the others {} (median), so that they wait for it {}; most of that is "
      "its "
      "{} ({}, the others {}); {}",
      straggler.rank, process, a_step(straggler.total.own), a_step(straggler.total.others), a_step(straggler.total.excess()),
      by_data ? "data" : "compute", a_step(straggler.part.own), a_step(straggler.part.others),
      by_data ? "look at the disk and memory of that host, or raise dataloader.num_workers"
              : "look for another program there, for fewer cores than the others have, or for lower clocks");
}

}  // namespace trainer::supervision
