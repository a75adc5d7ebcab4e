#include "launch/launcher_messages.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <vector>

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

TEST(LauncherMessages, AreReceivedInWholeLines) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> ranks;
  {
    const auto reader = read_messages(ends[0], [&](const LauncherMessage& message) {
      const std::lock_guard lock(mutex);
      ranks.push_back(message.rank);
      changed.notify_all();
    });
    for (const std::string& part : {std::string("stopped 1 31\nsto"), std::string("pped 2 32\n")}) {
      ASSERT_EQ(write(ends[1], part.data(), part.size()), static_cast<ssize_t>(part.size()));
    }
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::seconds(20), [&] { return ranks.size() == 2; });
  }
  EXPECT_EQ(ranks, (std::vector{1, 2}));
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace trainer::launch
