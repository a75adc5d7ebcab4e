#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/signal.h"
#include "base/standard_streams.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer {
namespace {

// Prints in a separate process, whose standard output is `descriptor` (-1: closed) and whose SIGPIPE is ignored. Returns the error message.
std::string message_of_printing(int descriptor, size_t size) {
  int report[2];
  if (::pipe(report) != 0) return "no pipe";
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGPIPE, SIG_IGN);
    if (descriptor >= 0) {
      ::dup2(descriptor, STDOUT_FILENO);
    } else {
      ::close(STDOUT_FILENO);
    }
    repair_inherited_state();
    std::string message = "no error";
    try {
      print_text(std::string(size, 'x'));
      flush_standard_output();
    } catch (const Error& error) {
      message = error.what();
    }
    try {
      print_text("more");
      flush_standard_output();
    } catch (const Error&) {
      message += " twice";
    }
    std::string_view bytes = message;
    write_all(report[1], bytes);
    ::_exit(0);
  }
  ::close(report[1]);
  std::string message;
  for (char next = 0; ::read(report[0], &next, 1) == 1;) message += next;
  ::close(report[0]);
  ::waitpid(child, nullptr, 0);
  return message;
}

TEST(StandardOutput, WhatCannotBeWrittenIsOneErrorWithItsReason) {
  const Descriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  // A text that stays in the buffer, and one that exceeds it.
  for (const size_t size : {1, 1 << 20}) {
    EXPECT_EQ(message_of_printing(full.number(), size), "cannot write to the standard output: No space left on device");
    EXPECT_EQ(message_of_printing(-1, size),
              "cannot write to the standard output: it is closed; to discard the output, redirect it to /dev/null");
  }
}

TEST(StandardOutput, TheEndOfAReaderIsNoError) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  for (const size_t size : {1, 1 << 20}) EXPECT_EQ(message_of_printing(ends[1], size), "no error");
  ::close(ends[1]);
}

void end_with(bool is_as_expected) { ::_exit(is_as_expected ? 0 : 1); }

TEST(InheritedStateDeathTest, ClosedDescriptorsAreOpenedOnNothing) {
  const auto repair = [] {
    for (const int descriptor : {0, 1, 2}) ::close(descriptor);
    repair_inherited_state();
    char byte = 0;
    const bool reads_nothing = ::read(STDIN_FILENO, &byte, 1) == 0;
    const bool has_no_output = is_standard_output_closed() && ::write(STDOUT_FILENO, "x", 1) < 0;
    const bool takes_messages = ::write(STDERR_FILENO, "x", 1) == 1;
    end_with(reads_nothing && has_no_output && takes_messages);
  };
  EXPECT_EXIT(repair(), ::testing::ExitedWithCode(0), "");
}

TEST(InheritedStateDeathTest, SignalsThatTheParentIgnores) {
  const auto repair = [] {
    std::signal(SIGCHLD, SIG_IGN);
    repair_inherited_state();
    end_with(std::signal(SIGCHLD, SIG_DFL) == SIG_DFL && std::signal(SIGXFSZ, SIG_DFL) == SIG_IGN);
  };
  EXPECT_EXIT(repair(), ::testing::ExitedWithCode(0), "");
}

TEST(InheritedStateDeathTest, AWorkingFolderThatIsRemoved) {
  const auto start = [] {
    const testing::TemporaryFolder folder;
    std::filesystem::current_path(folder.path());
    check_working_folder();
    std::filesystem::remove(folder.path());
    try {
      check_working_folder();
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
    }
    ::_exit(0);
  };
  EXPECT_EXIT(start(), ::testing::ExitedWithCode(0),
              "^the current folder has been removed; change to another folder, or cd into the path again if it has been created anew$");
}

}  // namespace
}  // namespace trainer
