#include "datasets/folder_listing.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

#include "base/signal.h"
#include "tests/testing/temporary_folder.h"
#include "tests/unit/datasets/small_files.h"
#include "trainer/error.h"

namespace trainer::datasets::test {
namespace {

// Requests a stop and runs the action. Must be called in a separate process, because a stop request cannot be withdrawn.
void act_after_stop_request(const std::function<void()>& action) {
  install_stop_handlers();
  raise(SIGTERM);
  try {
    action();
  } catch (const Error& error) {
    fprintf(stderr, "%s\n", error.what());
    _exit(static_cast<int>(error.exit_code()));
  }
  _exit(0);
}

TEST(FolderListingDeathTest, AStopRequestEndsIt) {
  const trainer::testing::TemporaryFolder folder;
  write_bytes(folder.path() / "1.jpg", "cat");
  const auto all = [&] { list_folder(folder.path()); };
  const auto some = [&] { list_files(folder.path(), {"1.jpg"}); };
  const auto text = "^stopped on request while listing " + folder.path().string() + "\n$";
  const ::testing::ExitedWithCode is_stopped(static_cast<int>(ExitCode::kStopped));
  EXPECT_EXIT(act_after_stop_request(all), is_stopped, text);
  EXPECT_EXIT(act_after_stop_request(some), is_stopped, text);
}

}  // namespace
}  // namespace trainer::datasets::test
