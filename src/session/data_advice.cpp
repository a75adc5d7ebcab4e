#include "session/data_advice.h"

#include <fmt/format.h>

namespace trainer::session {
namespace {

constexpr double kLargeShare = 0.1;
// The first batches of a short epoch always have to be waited for.
constexpr double kLongSeconds = 5;

}  // namespace

std::string advice_on_data(const engine::Interval& epoch, int64_t number, const config::Experiment& experiment) {
  if (epoch.waited_seconds < kLongSeconds || epoch.waited_seconds < kLargeShare * epoch.seconds) return "";
  auto text = fmt::format("training waited for data for {:.0f} % of epoch {}; raise dataloader.num_workers, which is {}",
                          100 * epoch.waited_seconds / epoch.seconds, number + 1, experiment.dataloader.num_workers);
  const auto& dataset = experiment.dataset;
  if (dataset.component.name != "lmdb" && dataset.component.name != "synthetic")
    text += ", store the images as pixels with `trainer data pack --raw`";
  if (dataset.stage_to.empty() && dataset.component.name != "synthetic")
    text += ", or copy the files to a disk of this host with dataset.stage_to";
  return text;
}

}  // namespace trainer::session
