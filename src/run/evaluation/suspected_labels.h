#pragma once
// Labels that are probably wrong, by the probabilities of networks that were not trained on the samples.

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace trainer::evaluation {

struct SuspectedLabel {
  int64_t sample = 0;  // row of `probabilities`
  int64_t label = 0;
  int64_t suggested = 0;
  double probability = 0;               // of the label
  double probability_of_suggested = 0;  // of the suggested class
};

// The off-diagonal samples of the confident joint, without those whose label has the largest probability, in ascending order of the label's
// probability (Northcutt et al.: "Confident Learning", 2021; cleanlab's find_label_issues with filter_by="confident_learning" and
// return_indices_ranked_by="self_confidence"). `probabilities`: float64 [N, classes]; `labels`: int64 [N]; both on the CPU.
std::vector<SuspectedLabel> find_suspected_labels(const torch::Tensor& probabilities, const torch::Tensor& labels);

}  // namespace trainer::evaluation
