#include "datasets/look_alike.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace trainer::datasets {
namespace {

bool look_alike(const std::string& a, const std::string& b) { return look_alike_of(a, {b}) == b && look_alike_of(b, {a}) == a; }

TEST(LookAlike, FormsOfTheSameLetterAndSpacesAtTheEnds) {
  EXPECT_TRUE(look_alike("caf\u00e9", "cafe\u0301"));
  EXPECT_TRUE(look_alike("\u00dcber\u00e9", "U\u0308bere\u0301"));
  EXPECT_TRUE(look_alike("\u1ec7", "e\u0323\u0302"));
  EXPECT_TRUE(look_alike("\uac01", "\u1100\u1161\u11a8"));
  EXPECT_TRUE(look_alike("\u304c", "\u304b\u3099"));
  EXPECT_TRUE(look_alike("cat", " cat\t"));
  EXPECT_TRUE(look_alike(" \u00e9", "e\u0301"));
}

TEST(LookAlike, OtherNamesDoNot) {
  for (const auto& [a, b] : std::vector<std::pair<std::string, std::string>>{{"cat", "cat"},
                                                                             {"cat", "car"},
                                                                             {"cat", "Cat"},
                                                                             {"caf\u00e9", "cafe"},
                                                                             {"caf\u00e9", "caf\u00e8"},
                                                                             {"cafe\u0301", "cafe\u0300"},
                                                                             {"cafe\u0301", "cafe"},
                                                                             {"\u732b", "\u72ac"},
                                                                             {"a b", "ab"},
                                                                             {"", "a"}}) {
    EXPECT_EQ(look_alike_of(a, {b}), "") << a << ' ' << b;
  }
}

TEST(LookAlike, ClassesAreNamed) {
  EXPECT_EQ(describe_look_alikes({"caf\u00e9", "cafe", "dog"}), "");
  const auto text = describe_look_alikes({"cafe\u0301", "caf\u00e9", "dog"});
  EXPECT_TRUE(text.starts_with("the classes \"cafe\u0301\" and \"caf\u00e9\" look alike, but differ in ")) << text;
}

}  // namespace
}  // namespace trainer::datasets
