#include "supervision/launcher_message_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <vector>

namespace trainer::supervision {
namespace {

TEST(LauncherMessageReader, ReceivesWholeLinesUntilItEnds) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> ranks;
  {
    const LauncherMessageReader reader(ends[0], [&](const launch::LauncherMessage& message) {
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
}  // namespace trainer::supervision
