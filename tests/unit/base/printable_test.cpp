#include <gtest/gtest.h>

#include <string>

#include "base/text.h"

namespace trainer {
namespace {

using std::string_literals::operator""s;

TEST(Printable, TextOfAllLanguagesStays) {
  for (const std::string text :
       {"", "epoch 1/5\tloss 0.5\n", "Größe 5 µm", "学習率", "🙂", "\u00a0\u07ff\u0800\uffff\U00010000\U0010ffff"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, ControlCharactersAreShown) {
  EXPECT_EQ(printable("\x1b]0;title\x07"), "\\x1b]0;title\\x07");
  EXPECT_EQ(printable("error\rfine"), "error\\x0dfine");
  EXPECT_EQ(printable("a\0b"s), "a\\x00b");
  EXPECT_EQ(printable("\x7f"), "\\x7f");
  // Characters that change the direction of a line would show "gpj.exe" as "exe.jpg".
  EXPECT_EQ(printable("\u202egpj.exe\u2069"), "\\xe2\\x80\\xaegpj.exe\\xe2\\x81\\xa9");
  EXPECT_EQ(printable("\u0080\u009f\u00a0~ "), "\\xc2\\x80\\xc2\\x9f\u00a0~ ");
  // A control character of the set C1, as a code point and as a byte.
  EXPECT_EQ(printable("\u009b2J"), "\\xc2\\x9b2J");
  EXPECT_EQ(printable("\x9b"
                      "2J"),
            "\\x9b2J");
}

TEST(Printable, BytesThatAreNotUtf8AreShown) {
  EXPECT_EQ(printable("caf\xe9 au lait"), "caf\\xe9 au lait");
  EXPECT_EQ(printable("\xc3"), "\\xc3");
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82");
  // Two characters with more bytes than needed, a surrogate, and two values above U+10FFFF.
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");
  EXPECT_EQ(printable("\xe0\x9f\xbf"), "\\xe0\\x9f\\xbf");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(printable("\xf8\x88\x80\x80\x80"), "\\xf8\\x88\\x80\\x80\\x80");
}

}  // namespace
}  // namespace trainer
