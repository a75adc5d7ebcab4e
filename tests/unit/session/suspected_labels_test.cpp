#include "run/evaluation/suspected_labels.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace trainer::evaluation {
namespace {

TEST(SuspectedLabels, AreThoseOfCleanlab) {
  std::ifstream file(TRAINER_SOURCE_DIR "/tests/golden/suspected_labels.json");
  const auto golden = nlohmann::json::parse(file);
  const auto rows = golden.at("probabilities").get<std::vector<std::vector<double>>>();
  std::vector<torch::Tensor> probabilities;
  for (const auto& row : rows) probabilities.push_back(torch::tensor(row, torch::kFloat64));
  const auto labels = golden.at("labels").get<std::vector<int64_t>>();

  std::vector<int64_t> samples;
  for (const auto& suspect : find_suspected_labels(torch::stack(probabilities), torch::tensor(labels))) {
    samples.push_back(suspect.sample);
    const auto& row = rows[static_cast<size_t>(suspect.sample)];
    EXPECT_EQ(suspect.label, labels[static_cast<size_t>(suspect.sample)]);
    EXPECT_EQ(suspect.probability, row[static_cast<size_t>(suspect.label)]);
    EXPECT_EQ(suspect.probability_of_suggested, row[static_cast<size_t>(suspect.suggested)]);
    EXPECT_NE(suspect.suggested, suspect.label);
  }
  EXPECT_EQ(samples, golden.at("suspected").get<std::vector<int64_t>>());
}

}  // namespace
}  // namespace trainer::evaluation
