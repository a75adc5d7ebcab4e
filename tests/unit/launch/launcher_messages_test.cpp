#include "launch/launcher_messages.h"

#include <gtest/gtest.h>

namespace trainer::launch {
namespace {

TEST(LauncherMessages, AreReadBackUnchanged) {
  for (const LauncherMessage& message :
       {LauncherMessage{LauncherMessage::Kind::kEnded, 12, 345, "was killed by signal 9 (Killed)"},
        LauncherMessage{LauncherMessage::Kind::kStopped, 0, 6}, LauncherMessage{LauncherMessage::Kind::kContinued, 3, 78}}) {
    auto line = format_message(message);
    ASSERT_EQ(line.back(), '\n');
    line.pop_back();
    const auto read = parse_message(line);
    EXPECT_EQ(read.kind, message.kind);
    EXPECT_EQ(read.rank, message.rank);
    EXPECT_EQ(read.process, message.process);
    EXPECT_EQ(read.detail, message.detail);
  }
  EXPECT_THROW(parse_message("vanished 3"), std::invalid_argument);
  EXPECT_THROW(parse_message("ended"), std::invalid_argument);
  EXPECT_THROW(parse_message("ended 3"), std::invalid_argument);
}

}  // namespace
}  // namespace trainer::launch
