#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <future>
#include <thread>

#include "base/log.h"
#include "base/signal.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer {
namespace {

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(File, WritesWholeFilesWithoutLeavingTemporaryFiles) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "a.txt";
  write_file_atomically(path, "one");
  write_file_atomically(path, "two\n");
  EXPECT_EQ(read_file(path), "two\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(File, FailuresNameThePathAndTheReason) {
  const testing::TemporaryFolder folder;
  const auto absent = folder.path() / "absent";
  EXPECT_EQ(message_of([&] { read_file(absent); }), "cannot read " + absent.string() + ": No such file or directory");
  const auto is_a_folder = "cannot read " + folder.path().string() + ": it is a folder, not a regular file";
  EXPECT_EQ(message_of([&] { read_file(folder.path()); }), is_a_folder);
  EXPECT_NE(message_of([&] { write_file_atomically(absent / "x", "y"); }).find("No such file or directory"), std::string::npos);
  EXPECT_NE(message_of([&] { write_file_atomically(folder.path(), "y"); }).find("cannot write"), std::string::npos);
  EXPECT_EQ(message_of([&] { const MappedFile map(folder.path()); }), is_a_folder);
  EXPECT_NE(message_of([&] { const LineFile file(absent / "x"); }).find("cannot write"), std::string::npos);
}

TEST(File, OnlyRegularFilesAreOpened) {
  const testing::TemporaryFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto is_a_pipe = pipe.string() + ": it is a pipe, not a regular file";
  EXPECT_EQ(message_of([&] { read_file(pipe); }), "cannot read " + is_a_pipe);
  EXPECT_EQ(message_of([&] { const MappedFile map(pipe); }), "cannot read " + is_a_pipe);
  EXPECT_EQ(message_of([&] { const LineFile file(pipe); }), "cannot write " + is_a_pipe);
  const auto logger = make_quiet_logger();
  EXPECT_EQ(message_of([&] { add_file(*logger, pipe); }), "cannot write " + is_a_pipe);
  EXPECT_EQ(message_of([&] { read_file("/dev/zero"); }), "cannot read /dev/zero: it is a device, not a regular file");
  EXPECT_EQ(message_of([&] { read_file_or_pipe("/dev/zero", 1); }), "cannot read /dev/zero: it is a device, not a regular file or a pipe");
}

TEST(File, PipesAreReadUpToALimit) {
  const testing::TemporaryFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  // Writes in another thread, because opening a pipe waits until the other end is opened.
  const auto write_to_pipe = [&pipe](const std::string& text) { return std::async([&pipe, text] { std::ofstream(pipe) << text; }); };
  const auto writer = write_to_pipe("seed: 1");
  EXPECT_EQ(read_file_or_pipe(pipe, 7), "seed: 1");
  const auto another = write_to_pipe("seed: 12");
  EXPECT_EQ(message_of([&] { read_file_or_pipe(pipe, 7); }), "cannot read " + pipe.string() + ": it has more than 7 B");
}

TEST(FileDeathTest, WaitingForAPipeEndsByAStopRequest) {
  const testing::TemporaryFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto read_after_request = [&] {
    install_stop_handlers();
    raise(SIGTERM);
    try {
      read_file_or_pipe(pipe, 100);
    } catch (const Error& error) {
      fputs(error.what(), stderr);
      _exit(static_cast<int>(error.exit_code()));
    }
  };
  EXPECT_EXIT(read_after_request(), ::testing::ExitedWithCode(75), "^stopped on request while waiting for the writer of the pipe /");
}

TEST(FileAccess, InnerAccessesReplaceOuterOnes) {
  const auto before = current_file_access().num_changes;
  const FileAccess outer("opening the run directory", "runs/a");
  EXPECT_EQ(current_file_access().text, "opening the run directory runs/a");
  {
    const FileAccess inner("reading", "runs/a/last.pt");
    EXPECT_EQ(current_file_access().text, "reading runs/a/last.pt");
    std::thread([] {
      const FileAccess of_another_thread("reading", "data");
      EXPECT_EQ(current_file_access().text, "reading runs/a/last.pt");
    }).join();
  }
  EXPECT_EQ(current_file_access().text, "opening the run directory runs/a");
  EXPECT_EQ(current_file_access().num_changes, before + 3);
}

TEST(File, LinesAreWrittenImmediately) {
  const testing::TemporaryFolder folder;
  LineFile file(folder.path() / "lines");
  file.write_line("first");
  EXPECT_EQ(read_file(folder.path() / "lines"), "first\n");
  LineFile again(folder.path() / "lines");
  again.write_line("second");
  EXPECT_EQ(read_file(folder.path() / "lines"), "first\nsecond\n");
}

TEST(File, AFolderOfAnotherUserIsNamedWithItsOwnerAndTheRemedy) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const testing::TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  const auto path = folder.path().string();
  ASSERT_EQ(::seteuid(1234), 0);
  const auto message = message_of([&] { write_file_atomically(folder.path() / "file", "x"); });
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_EQ(message, "cannot write " + path + "/file: Permission denied: " + path +
                         " belongs to user 0, but this process runs as user 1234 (chown -R 1234 " + path +
                         " gives it to this user; to run a container as its owner, use --user 0:0)");
}

TEST(File, SymbolicLinksAreNotFollowedForWriting) {
  const testing::TemporaryFolder folder;
  const auto target = folder.path() / "target";
  write_file_atomically(target, "unchanged");
  const auto link = folder.path() / "link";
  std::filesystem::create_symlink(target, link);
  EXPECT_EQ(message_of([&] { const LineFile file(link); }),
            "cannot write " + link.string() + ": it is a symbolic link, which is not followed; remove the link");
  // An atomic write does not follow a link in the place of its temporary file; a link in the place of the file is replaced.
  const auto temporary = folder.path() / ("file.tmp" + std::to_string(::getpid()));
  std::filesystem::create_symlink(target, temporary);
  EXPECT_EQ(message_of([&] { write_file_atomically(folder.path() / "file", "x"); }),
            "cannot write " + temporary.string() + ": it is a symbolic link, which is not followed; remove the link");
  std::filesystem::remove(temporary);
  write_file_atomically(link, "new");
  EXPECT_FALSE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_file(target), "unchanged");
}

TEST(File, ALineThatDoesNotFitIsNotWrittenInPart) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "lines";
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{10, 10};
    setrlimit(RLIMIT_FSIZE, &limit);
    LineFile file(path);
    file.write_line("first");
    const auto message = message_of([&] { file.write_line("too long"); });
    _exit(message == "cannot write " + path.string() + ": File too large (ulimit -f limits the size of files)" ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_file(path), "first\n");
}

TEST(File, MapsWholeFiles) {
  const testing::TemporaryFolder folder;
  write_file_atomically(folder.path() / "bytes", "abc");
  write_file_atomically(folder.path() / "empty", "");
  MappedFile map(folder.path() / "bytes");
  const MappedFile moved(std::move(map));
  EXPECT_EQ(std::string(moved.bytes().begin(), moved.bytes().end()), "abc");
  EXPECT_TRUE(MappedFile(folder.path() / "empty").bytes().empty());
}

TEST(Log, AFileReceivesTheLoggedLines) {
  const testing::TemporaryFolder folder;
  const auto logger = make_quiet_logger();
  add_file(*logger, folder.path() / "train.log");
  logger->info("hello {}", 1);
  logger->warn("careful");
  logger->flush();
  const auto text = read_file(folder.path() / "train.log");
  EXPECT_NE(text.find(" info: hello 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" warning: careful\n"), std::string::npos) << text;
  EXPECT_NE(message_of([&] { add_file(*logger, folder.path()); }).find("cannot write "), std::string::npos);
}

}  // namespace
}  // namespace trainer
