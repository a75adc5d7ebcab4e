#include "base/crash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "tests/testing/temporary_folder.h"

namespace trainer {
namespace {

using ::testing::HasSubstr;

TEST(Crash, ReportHasTheProcessAndAStack) {
  for (const int number : {SIGSEGV, SIGABRT}) {
    const auto file = std::filesystem::temp_directory_path() / ("trainer-crash-" + std::to_string(getpid()));
    std::filesystem::remove(file);
    const pid_t child = fork();
    if (child == 0) {
      close(STDERR_FILENO);
      install_crash_handlers();
      describe_process("rank 2 of 4, in step 12");
      set_crash_file(file);
      number == SIGABRT ? std::abort() : static_cast<void>(raise(number));
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), number);
    const auto text = read_file(file);
    EXPECT_THAT(text, HasSubstr("crash: rank 2 of 4, in step 12: "));
    EXPECT_THAT(text, HasSubstr("base_test"));
    std::filesystem::remove(file);
  }
}

TEST(Crash, NamesTheMappedFileThatWasShortened) {
  const testing::TemporaryFolder folder;
  const auto report = folder.path() / "report";
  const auto data = folder.path() / "data";
  write_file_atomically(data, "abc");
  const pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    install_crash_handlers();
    set_crash_file(report);
    const MappedFile file(data);
    std::filesystem::resize_file(data, 0);
    _exit(file.bytes()[0]);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGBUS);
  EXPECT_THAT(read_file(report), HasSubstr("Bus error: " + data.string() + " was shortened or cannot be read\n"));
}

TEST(Crash, StacksOfAllThreads) {
  const pid_t child = fork();
  if (child == 0) {
    install_crash_handlers();
    std::mutex mutex;
    std::condition_variable changed;
    bool is_waiting = false;
    bool is_done = false;
    std::thread other([&] {
      std::unique_lock lock(mutex);
      is_waiting = true;
      changed.notify_all();
      changed.wait(lock, [&] { return is_done; });
    });
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return is_waiting; });
    }
    const auto text = stacks_of_all_threads();
    {
      const std::lock_guard lock(mutex);
      is_done = true;
      changed.notify_all();
    }
    other.join();
    const auto num_threads = [&] {
      int count = 0;
      for (size_t at = text.find("  thread "); at != std::string::npos; at = text.find("  thread ", at + 1)) ++count;
      return count;
    }();
    _exit(num_threads >= 2 && text.find("pthread_cond") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace trainer
