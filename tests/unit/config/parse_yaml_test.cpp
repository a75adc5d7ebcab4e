#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "config/yaml.h"
#include "trainer/error.h"

namespace trainer::config {
namespace {

std::string parse_error(const std::string& text) {
  try {
    parse_yaml(text, "x.yaml");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ParseYaml, KeepsOrderAndPositions) {
  const Node root = parse_yaml("b: 1\na:\n  - x\n  - {c: \"2\"}\n", "x.yaml");
  ASSERT_EQ(root.members.size(), 2U);
  EXPECT_EQ(root.members[0].name, "b");
  EXPECT_EQ(to_string(root.members[1].position), "x.yaml:2:1");
  const Node& list = root.members[1].value;
  ASSERT_EQ(list.items.size(), 2U);
  EXPECT_EQ(to_string(list.items[0].position), "x.yaml:3:5");
  EXPECT_EQ(list.items[1].members[0].value.text, "2");
  EXPECT_TRUE(list.items[1].members[0].value.quoted);
  EXPECT_FALSE(root.members[0].value.quoted);
}

TEST(ParseYaml, NullInItsSpellings) {
  const Node root = parse_yaml("a:\nb: ~\nc: null\nd: \"null\"\n", "x.yaml");
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(root.members[i].value.kind, Node::Kind::kNull) << i;
  EXPECT_EQ(root.members[3].value.kind, Node::Kind::kScalar);
}

TEST(ParseYaml, EmptyTextIsNull) {
  EXPECT_EQ(parse_yaml("", "x.yaml").kind, Node::Kind::kNull);
  EXPECT_EQ(parse_yaml("# only a comment\n", "x.yaml").kind, Node::Kind::kNull);
}

TEST(ParseYaml, InvalidYamlNamesItsPlace) {
  EXPECT_TRUE(parse_error("a: [1, 2\nb: 3\n").starts_with("x.yaml:2:")) << parse_error("a: [1, 2\nb: 3\n");
  EXPECT_NE(parse_error("a: 'open").find("invalid YAML"), std::string::npos);
}

TEST(ParseYaml, TabsAreExplained) {
  const auto error = parse_error("model:\n\tname: resnet18\n");
  EXPECT_NE(error.find("tab"), std::string::npos) << error;
  EXPECT_TRUE(error.starts_with("x.yaml:")) << error;
}

TEST(ParseYaml, DuplicateKeysNameBothPlaces) {
  EXPECT_EQ(parse_error("a: 1\nb: 2\na: 3\n"), "x.yaml:3:1: \"a\" is given a second time (first on line 1); keep one");
  EXPECT_NE(parse_error("m: {a: 1, a: 2}\n").find("second time"), std::string::npos);
}

TEST(ParseYaml, TagsAreRefused) { EXPECT_NE(parse_error("a: !!python/object:os.system x\n").find("tags"), std::string::npos); }

TEST(ParseYaml, SecondDocumentIsRefused) {
  EXPECT_EQ(parse_error("a: 1\n---\nb: 2\n"),
            "x.yaml:2:1: a second YAML document begins here, but an experiment file contains one; remove the line ---");
}

TEST(ParseYaml, StructuredKeysAreRefused) { EXPECT_NE(parse_error("? [a, b]\n: 1\n").find("a key must be a name"), std::string::npos); }

TEST(ParseYaml, NestingIsBounded) {
  EXPECT_NE(parse_error("a: " + std::string(400'000, '[') + std::string(400'000, ']')).find("nested more than 32 levels deep"),
            std::string::npos);
  EXPECT_TRUE(parse_error("a: " + std::string(500'000, '[')).starts_with("x.yaml:1:"));
  EXPECT_NE(parse_error("a: " + std::string(10'000'000, '[')).find("at most 1 MiB"), std::string::npos);
  std::string map;
  for (int depth = 0; depth < 200; ++depth) map += std::string(static_cast<size_t>(depth), ' ') + "a:\n";
  EXPECT_NE(parse_error(map).find("nested more than 32 levels deep"), std::string::npos);
}

TEST(ParseYaml, TheKeysOfASectionAreBounded) {
  std::string map;
  for (int i = 0; i < 100'000; ++i) map += fmt::format("k{}:\n", i);
  EXPECT_EQ(parse_error(map), "x.yaml:1001:1: more than 1000 keys in one section, so this is not an experiment file; check the path");
}

TEST(ParseYaml, AnchorsAndAliasesAreRefused) {
  const std::string refusal =
      ": anchors (&name) and aliases (*name) are not supported; write the value in each place, or in a file that is the `base` of others";
  EXPECT_EQ(parse_error("a: &x {b: 1}\nc: *x\n"), "x.yaml:1:4" + refusal);
  EXPECT_EQ(parse_error("&x a: 1\n"), "x.yaml:1:1" + refusal);
}

TEST(ParseYaml, OnlyUtf8Text) {
  EXPECT_EQ(parse_error("a: 1\nb: caf\xE9\n"), "x.yaml:2:7: byte 0xe9 is not UTF-8 text; save the file as UTF-8");
  EXPECT_NE(parse_error(std::string("\xFF\xFE"
                                    "a\0:\0",
                                    6))
                .find("x.yaml:1:1: byte 0xff"),
            std::string::npos);
  EXPECT_NE(parse_error(std::string("a: \0b", 5)).find("byte 0x00"), std::string::npos);
  EXPECT_NE(parse_error("a: \xED\xA0\x80").find("not UTF-8"), std::string::npos);  // a surrogate
  EXPECT_NE(parse_error("a: \xC0\xAF").find("not UTF-8"), std::string::npos);      // overlong
  EXPECT_EQ(parse_yaml("a: \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\n", "x.yaml").members[0].value.text,
            "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
}

TEST(ToYaml, ReadsBackToTheSameTree) {
  Node root = Node::map();
  root.set("plain", Node::scalar("a/b.c-d"));
  root.set("empty", Node::scalar(""));
  root.set("words", Node::scalar("two words: # no comment"));
  root.set("looks_null", Node::scalar("null"));
  root.set("escapes", Node::scalar("quote \" backslash \\ newline \n tab \t end"));
  root.set("nothing", Node{});
  root.set("numbers", Node::list({Node::scalar("1"), Node::scalar("-2.5e-4")}));
  Node part = Node::map();
  part.set("random_crop", Node::map()).set("size", Node::scalar("32"));
  root.set("parts", Node::list({part}));
  root.set("section", Node::map()).set("key", Node::scalar("value"));
  const Node again = parse_yaml(to_yaml(root), "again");
  EXPECT_EQ(to_yaml(again), to_yaml(root));
  EXPECT_EQ(again.find("words")->value.text, "two words: # no comment");
  EXPECT_EQ(again.find("escapes")->value.text, "quote \" backslash \\ newline \n tab \t end");
  EXPECT_EQ(again.find("looks_null")->value.kind, Node::Kind::kScalar);
  EXPECT_EQ(again.find("nothing")->value.kind, Node::Kind::kNull);
}

TEST(ToYaml, TextIsQuotedWhereAReaderOfYamlWouldReadSomethingElse) {
  const auto written = [](const char* text) { return to_inline_yaml(Node::scalar(text, /*quoted=*/true)); };
  for (const auto* text : {"no", "Yes", "ON", "off",  "y",    "N",   "true", "False", "0123", "12:30:00",   "1_000", "1e5",  "1.5",
                           "-1", "+1",  ".5", "0x1f", "0b1",  "0o7", ".inf", "-.INF", ".nan", "2026-01-31", "~",     "null", "=",
                           "<<", "-",   "",   "a: b", "a #b", "[a]", "*a",   "&a",    "!a",   "%a",         "@a"}) {
    EXPECT_EQ(written(text), fmt::format("\"{}\"", text));
    EXPECT_EQ(parse_yaml(written(text), "x.yaml").text, text);
  }
  for (const auto* text : {"cifar10", "runs/a", "/data", "./data", "../data", "none", "on_error", "yes_no", "a-1", "http://host:80", "_"}) {
    EXPECT_EQ(written(text), text);
  }
  EXPECT_EQ(written("a\xe2\x80\xa8\xef\xbb\xbf\xef\xbf\xbf"), R"("a\u2028\ufeff\uffff")");
}

TEST(ToYaml, NumbersHaveAFractionBeforeTheirExponent) {
  EXPECT_EQ(portable_number("1e-05"), "1.0e-05");
  EXPECT_EQ(portable_number("-2e+20"), "-2.0e+20");
  for (const auto* text : {"2.5e-07", "0.1", "3", "resnet18", "1e", "e5", "\"1e5\"", "[1e5]"}) EXPECT_EQ(portable_number(text), text);
}

}  // namespace
}  // namespace trainer::config
