// Compares the train step's losses with those of Python in tests/golden/losses.json.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/testing/loss_cases.h"

namespace trainer::engine {
namespace {

nlohmann::json golden() { return nlohmann::json::parse(std::ifstream(TRAINER_SOURCE_DIR "/tests/golden/losses.json")); }

void expect_near(double actual, double expected, double relative, const std::string& what) {
  EXPECT_LE(std::abs(actual - expected), relative * std::abs(expected)) << what << ": " << actual << ", Python " << expected;
}

void check(const nlohmann::json& expected, const std::vector<std::string>& checksums) {
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
  for (const auto& checksum : checksums) expect_near(actual.at(checksum), expected.at(checksum), tolerance, name + " " + checksum);
}

TEST(Losses, Float64EqualPython) {
  const auto document = golden();
  ASSERT_EQ(document.at("float64").size(), 14U);
  for (const auto& expected : document.at("float64")) check(expected, {"sum", "sum_of_squares"});
}

TEST(Losses, Float32EqualPythonOnTheSameKindOfCpu) {
  const auto kind = testing::cpu_kind();
  const auto document = golden();
  for (const auto& entry : document.at("float32")) {
    if (entry.at("cpu") != kind) continue;
    for (const auto& expected : entry.at("cases")) check(expected, {"sum_of_squares"});
    return;
  }
  GTEST_SKIP() << "no golden losses for this CPU (" << kind << "); tests/golden/make_losses.py adds them";
}

}  // namespace
}  // namespace trainer::engine
