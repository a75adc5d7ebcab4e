// Compares the train step's losses with those of Python in tests/golden/losses.json.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/testing/loss_cases.h"

namespace trainer::engine {
namespace {

void expect_near(double actual, double expected, double relative, const std::string& what) {
  EXPECT_LE(std::abs(actual - expected), relative * std::abs(expected)) << what << ": " << actual << ", Python " << expected;
}

void check(const nlohmann::json& expected) {
  auto name = expected.at("network").get<std::string>() + " " + expected.at("optimizer").get<std::string>();
  if (expected.contains("ranks")) {
    name += fmt::format(" on {} ranks, sync_batch_norm: {}", expected.at("ranks").get<int>(), expected.at("sync_batch_norm").get<bool>());
  }
  if (expected.contains("batch_transforms")) name += ", batch_transforms: " + expected.at("batch_transforms").get<std::string>();
  const auto actual = testing::run_loss_case(expected);
  const auto tolerance = expected.at("tolerance").get<double>();
  ASSERT_EQ(actual.at("losses").size(), expected.at("losses").size());
  for (size_t i = 0; i < expected.at("losses").size(); ++i) {
    expect_near(actual.at("losses")[i], expected.at("losses")[i], tolerance, name + " loss " + std::to_string(i));
  }
  for (const std::string key : {"sum", "sum_of_squares"}) expect_near(actual.at(key), expected.at(key), tolerance, name + " " + key);
}

// tests/parity/test_losses.py compares those in float32, which depend on the CPU.
TEST(Losses, Float64EqualPython) {
  const auto cases = nlohmann::json::parse(std::ifstream(TRAINER_SOURCE_DIR "/tests/golden/losses.json")).at("cases");
  ASSERT_EQ(cases.size(), 14U);
  for (const auto& expected : cases) check(expected);
}

}  // namespace
}  // namespace trainer::engine
