#include <gtest/gtest.h>

#include "reporting/values.h"

namespace trainer::reporting {
namespace {

TEST(Json, ControlCharactersAreEscapedAsJsonKnowsThem) {
  Json value;
  value["a\x7f"] = "\x1b[31m\u0080\u0085\u009f, \u00a0, é, €\x7f";
  const auto text = to_text(value);
  EXPECT_EQ(text, R"({"a\u007f":"\u001b[31m\u0080\u0085\u009f, )"
                  "\u00a0, é, €"
                  R"(\u007f"})");
  EXPECT_EQ(Json::parse(text), value);
}

TEST(Json, BytesThatAreNotUtf8AreReplaced) {
  EXPECT_EQ(to_text({{"file", "caf\xe9.yaml"}, {"tail", "\xc2"}}, 2), "{\n  \"file\": \"caf\uFFFD.yaml\",\n  \"tail\": \"\uFFFD\"\n}");
}

}  // namespace
}  // namespace trainer::reporting
