#include "launch/world/terminal.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace trainer::world {
namespace {

struct Variables {
  std::string terminal, all, ctype, lang;
};

bool shows_unicode_with(const Variables& variables) {
  setenv("TERM", variables.terminal.c_str(), 1);
  setenv("LC_ALL", variables.all.c_str(), 1);
  setenv("LC_CTYPE", variables.ctype.c_str(), 1);
  setenv("LANG", variables.lang.c_str(), 1);
  return shows_unicode();
}

TEST(ShowsUnicode, DependsOnTheLocaleThatCountsAndOnTheTerminal) {
  EXPECT_TRUE(shows_unicode_with({.terminal = "xterm", .all = "", .ctype = "", .lang = "en_US.UTF-8"}));
  EXPECT_TRUE(shows_unicode_with({.terminal = "xterm", .all = "C.utf8", .ctype = "C", .lang = "C"}));
  EXPECT_TRUE(shows_unicode_with({.terminal = "", .all = "", .ctype = "C.UTF-8", .lang = "C"}));
  EXPECT_FALSE(shows_unicode_with({.terminal = "xterm", .all = "C", .ctype = "", .lang = "en_US.UTF-8"}));
  EXPECT_FALSE(shows_unicode_with({.terminal = "xterm", .all = "", .ctype = "", .lang = "de_DE.ISO-8859-1"}));
  EXPECT_FALSE(shows_unicode_with({.terminal = "xterm", .all = "", .ctype = "", .lang = ""}));
  EXPECT_FALSE(shows_unicode_with({.terminal = "dumb", .all = "", .ctype = "", .lang = "en_US.UTF-8"}));
}

}  // namespace
}  // namespace trainer::world
