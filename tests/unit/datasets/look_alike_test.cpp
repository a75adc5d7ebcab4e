#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "datasets/folder_listing.h"
#include "trainer/random.h"

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

TEST(LookAlike, TheFirstPairIsNamedWhateverItsForms) {
  const std::vector<std::string> letters = {"a", " ", "\u00e9", "\u00e8", "e\u0301", "e\u0300"};
  CounterRandom random(1, 2);
  int num_found = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::string> names(2 + random.next_below(6));
    for (auto& name : names) {
      for (int letter = 0; letter < 3; ++letter) name += letters[random.next_below(static_cast<uint32_t>(letters.size()))];
    }
    std::string expected;
    for (size_t later = 1; later < names.size() && expected.empty(); ++later) {
      const auto other = look_alike_of(names[later], {names.begin(), names.begin() + static_cast<ptrdiff_t>(later)});
      if (!other.empty()) expected = "the classes \"" + other + "\" and \"" + names[later] + "\" look alike";
    }
    num_found += expected.empty() ? 0 : 1;
    const auto text = describe_look_alikes(names);
    ASSERT_EQ(text.substr(0, text.find(',')), expected) << i;
  }
  EXPECT_GT(num_found, 200);
  EXPECT_LT(num_found, 1800);
}

}  // namespace
}  // namespace trainer::datasets
