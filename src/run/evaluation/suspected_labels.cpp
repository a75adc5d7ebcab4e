#include "run/evaluation/suspected_labels.h"

namespace trainer::evaluation {

std::vector<SuspectedLabel> find_suspected_labels(const torch::Tensor& probabilities, const torch::Tensor& labels) {
  constexpr double kRounding = 1e-6;  // as in cleanlab
  const auto is_label = at::one_hot(labels, probabilities.size(1)).to(probabilities.dtype());
  // The mean of each class's probability over the samples with this label; NaN, which no probability reaches, if there are none.
  const auto thresholds = (probabilities * is_label).sum(0) / is_label.sum(0);
  const auto is_confident = (probabilities >= thresholds - kRounding).to(torch::kLong);
  const auto num_confident = is_confident.sum(1);
  const auto most_probable = probabilities.argmax(1);
  const auto suggested = at::where(num_confident > 1, most_probable, is_confident.argmax(1));
  const auto rows = ((num_confident > 0) & (suggested != labels) & (most_probable != labels)).nonzero().squeeze(1);
  const auto of_label = probabilities.gather(1, labels.unsqueeze(1)).squeeze(1).index_select(0, rows);

  std::vector<SuspectedLabel> suspected;
  const auto order = std::get<1>(of_label.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false));
  for (int64_t i = 0; i < order.size(0); ++i) {
    const auto row = rows[order[i].item<int64_t>()].item<int64_t>();
    const auto other = suggested[row].item<int64_t>();
    suspected.push_back({.sample = row,
                         .label = labels[row].item<int64_t>(),
                         .suggested = other,
                         .probability = of_label[order[i].item<int64_t>()].item<double>(),
                         .probability_of_suggested = probabilities[row][other].item<double>()});
  }
  return suspected;
}

}  // namespace trainer::evaluation
