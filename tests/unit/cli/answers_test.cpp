#include "cli/answers.h"

#include <gmock/gmock.h>

#include <array>

namespace trainer::cli {
namespace {

TEST(FindAnswer, OnlyTheWholeCommandLineCounts) {
  const std::array<Answer, 2> answers = {{{"list models", "resnet18\n"}, {"--help", "usage\n"}}};
  const auto* text = find_answer(answers, {"list", "models"});
  ASSERT_NE(text, nullptr);
  EXPECT_EQ(*text, "resnet18\n");
  EXPECT_EQ(find_answer(answers, {"list"}), nullptr);
  EXPECT_EQ(find_answer(answers, {"list", "models", "--help"}), nullptr);
  EXPECT_EQ(find_answer(answers, {}), nullptr);
}

}  // namespace
}  // namespace trainer::cli
