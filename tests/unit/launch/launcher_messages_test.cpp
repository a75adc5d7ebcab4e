#include "launch/launcher_messages.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <vector>

namespace trainer::launch {
namespace {

TEST(LauncherMessages, AreReceivedInWholeLines) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<LauncherMessage> received;
  {
    const auto reader = read_messages(ends[0], [&](const LauncherMessage& message) {
      const std::lock_guard lock(mutex);
      received.push_back(message);
      changed.notify_all();
    });
    const auto lines = format_message({LauncherMessage::Kind::kStopped, 1, 31}) +
                       format_message({LauncherMessage::Kind::kEnded, 2, 32, "was killed by signal 9 (Killed)"});
    for (const auto& part : {lines.substr(0, lines.size() / 2), lines.substr(lines.size() / 2)}) {
      ASSERT_EQ(write(ends[1], part.data(), part.size()), static_cast<ssize_t>(part.size()));
    }
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::seconds(20), [&] { return received.size() == 2; });
  }
  ASSERT_EQ(received.size(), 2U);
  EXPECT_EQ(received[0].kind, LauncherMessage::Kind::kStopped);
  EXPECT_EQ(received[0].process, 31);
  EXPECT_EQ(received[1].rank, 2);
  EXPECT_EQ(received[1].detail, "was killed by signal 9 (Killed)");
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace trainer::launch
