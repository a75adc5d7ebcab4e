#include "base/file_lock.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/file.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace {

std::string host_of_test = "host-a";
enum class Flocks { kWork, kMissing, kAlwaysSucceed } flocks_of_test = Flocks::kWork;

}  // namespace

// These functions replace those of the C library in this test program, to imitate several hosts and other file systems.
extern "C" int gethostname(char* name, size_t size) noexcept {
  std::strncpy(name, host_of_test.c_str(), size);
  return 0;
}

extern "C" int flock(int descriptor, int operation) noexcept {
  if (flocks_of_test == Flocks::kAlwaysSucceed) return 0;
  if (flocks_of_test == Flocks::kWork) return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
  errno = ENOLCK;
  return -1;
}

namespace trainer {
namespace {

class FileLockTest : public ::testing::Test {
 protected:
  FileLockTest() {
    host_of_test = "host-a";
    flocks_of_test = Flocks::kWork;
  }
  ~FileLockTest() override { flocks_of_test = Flocks::kWork; }
  FileLock lock(std::chrono::milliseconds renewal = std::chrono::milliseconds(20)) {
    return {file_, {.logger = &logger_, .renewal = renewal, .patience = std::chrono::milliseconds(600)}};
  }
  void write(const std::string& text) const { std::ofstream(file_) << text; }
  std::string log() const { return log_.str(); }

  // Of a process that does not renew its lease any more.
  static constexpr std::chrono::hours kNever{1};

  testing::TemporaryFolder folder_;
  std::filesystem::path file_ = folder_.path() / "lock";
  std::ostringstream log_;
  Logger logger_{"", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_)};
};

std::string description(const std::string& host) { return "process " + std::to_string(::getpid()) + " on " + host + " since "; }

TEST_F(FileLockTest, ASecondProcessOfTheHostIsRefusedUntilTheLockIsReleased) {
  {
    const auto first = lock();
    ASSERT_TRUE(first.is_held());
    EXPECT_EQ(first.other(), "");
    EXPECT_EQ(first.taken_by(), std::nullopt);
    const auto second = lock();
    EXPECT_FALSE(second.is_held());
    EXPECT_EQ(second.error(), std::errc::operation_would_block);
    EXPECT_TRUE(second.other().starts_with(description("host-a"))) << second.other();
    EXPECT_TRUE(is_locked(file_));
  }
  EXPECT_EQ(read_file(file_), "");
  EXPECT_FALSE(is_locked(file_));
  EXPECT_TRUE(lock().is_held());
  EXPECT_EQ(log(), "");
}

TEST_F(FileLockTest, AnotherHostIsRefusedWhileTheLeaseIsRenewed) {
  flocks_of_test = Flocks::kAlwaysSucceed;
  const auto first = lock();
  host_of_test = "host-b";
  const auto second = lock();
  EXPECT_EQ(second.error(), std::errc::operation_would_block);
  EXPECT_TRUE(second.other().starts_with(description("host-a"))) << second.other();
  EXPECT_TRUE(is_locked(file_));
  EXPECT_EQ(first.taken_by(), std::nullopt);
}

TEST_F(FileLockTest, AnotherHostTakesOverALeaseThatIsNotRenewedAndTheFirstNotices) {
  flocks_of_test = Flocks::kAlwaysSucceed;
  std::optional<FileLock> first(lock(kNever));
  host_of_test = "host-b";
  const auto second = lock();
  ASSERT_TRUE(second.is_held());
  EXPECT_TRUE(second.other().starts_with(description("host-a"))) << second.other();
  EXPECT_TRUE(second.other().ends_with(", which has not renewed it for 0.6 s")) << second.other();
  EXPECT_NE(log().find("waiting 0.6 s for a renewal of its lease"), std::string::npos) << log();
  const auto other = first->taken_by();
  ASSERT_TRUE(other);
  EXPECT_TRUE(other->starts_with(description("host-b"))) << *other;
  // The first one leaves the lock of the second one alone.
  first.reset();
  EXPECT_EQ(second.taken_by(), std::nullopt);
}

TEST_F(FileLockTest, ALeaseReplacesAMissingFlock) {
  flocks_of_test = Flocks::kMissing;
  {
    const auto first = lock();
    ASSERT_TRUE(first.is_held());
    EXPECT_NE(log().find(file_.string() + ": this file system has no locks (flock: No locks available)"), std::string::npos) << log();
    EXPECT_NE(log().find("Lustre: flock"), std::string::npos) << log();
    EXPECT_EQ(lock().error(), std::errc::operation_would_block);
    EXPECT_TRUE(is_locked(file_));
  }
  EXPECT_TRUE(lock().is_held());
}

TEST_F(FileLockTest, AKilledProcessOfThisHostNeedsNoWait) {
  const auto process = ::fork();
  if (process == 0) {
    const auto held = lock();
    _exit(held.is_held() ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(process, &status, 0), process);
  ASSERT_EQ(status, 0);
  EXPECT_FALSE(is_locked(file_));
  const auto next = lock();
  ASSERT_TRUE(next.is_held());
  EXPECT_TRUE(next.other().starts_with(fmt::format("process {} on host-a since ", process))) << next.other();
  EXPECT_TRUE(next.other().ends_with(", which ended without releasing it")) << next.other();
}

TEST_F(FileLockTest, OnlyARegularFileIsLocked) {
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  try {
    lock();
    ADD_FAILURE() << "a pipe";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), "cannot lock " + file_.string() + ": it is a pipe, not a regular file");
  }
  std::filesystem::remove(file_);
  std::filesystem::create_symlink(folder_.path() / "target", file_);
  EXPECT_EQ(lock().error(), std::errc::too_many_symbolic_link_levels);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "target"));
}

TEST_F(FileLockTest, ARemovedFileIsNotTakenButACreatedOneIs) {
  const auto first = lock();
  std::filesystem::remove(file_);
  EXPECT_EQ(first.taken_by(), std::nullopt);
  const auto second = lock();
  EXPECT_TRUE(second.is_held());
  EXPECT_TRUE(first.taken_by().value_or("").starts_with(description("host-a")));
}

TEST_F(FileLockTest, ReadersJudgeAnotherHostByTheTimeOfTheRenewal) {
  write(description("host-c") + "2026-01-31 12:00:00 +0000");
  EXPECT_TRUE(is_locked(file_));
  std::filesystem::last_write_time(file_, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_FALSE(is_locked(file_));
}

}  // namespace
}  // namespace trainer
