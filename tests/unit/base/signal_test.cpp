#include "base/signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::ExitedWithCode;

constexpr int kStopped = static_cast<int>(ExitCode::kStopped);

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  return names;
}

[[noreturn]] void stop() {
  exit_on_stop_signals();
  ::raise(SIGTERM);
  ::_exit(0);
}

TEST(ExitOnStopSignals, RemovesTheUnfinishedFile) {
  const testing::TemporaryFolder folder;
  const auto write = [&] {
    write_file_atomically(folder.path() / "finished", "whole");
    AtomicFile file(folder.path() / "unfinished");
    file.write("half");
    if (names_in(folder.path()).size() == 2) stop();
  };
  EXPECT_EXIT(write(), ExitedWithCode(kStopped), "stopped on request");
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"finished"}));
}

TEST(ExitOnStopSignals, KeepsFilesThatAreNoLongerItsOwn) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "file";
  std::optional<RemovedOnExit> first(file);
  const RemovedOnExit second(folder.path() / "second");
  first.reset();
  const auto write = [&] {
    write_file_atomically(file, "whole");
    write_file_atomically(folder.path() / "second", "whole");
    stop();
  };
  EXPECT_EXIT(write(), ExitedWithCode(kStopped), "stopped on request");
  EXPECT_EQ(names_in(folder.path()).size(), 2U);
}

TEST(ExitOnStopSignals, AcceptAPathThatIsTooLong) {
  const RemovedOnExit file(std::string(100'000, 'x'));
  EXPECT_EXIT(stop(), ExitedWithCode(kStopped), "stopped on request");
}

}  // namespace
}  // namespace trainer
