#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <system_error>

#include "launch/world/host_resources.h"
#include "trainer/error.h"

namespace trainer::world {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::StartsWith;

constexpr uid_t kNobody = 65534;
constexpr const char* kRemedy = "; raise the limit, end other processes, or lower runtime.threads and dataloader.num_workers";

// Starts more threads than the user may have; exits with 0 if that is refused. Must be called in a separate process.
void start_too_many() {
  // The limit does not apply to root, so the process changes its user.
  const rlimit limit{.rlim_cur = 20, .rlim_max = 20};
  if (setrlimit(RLIMIT_NPROC, &limit) != 0 || (geteuid() == 0 && setuid(kNobody) != 0)) _exit(2);
  try {
    check_threads(100);
  } catch (const Error& error) {
    fputs(error.what(), stderr);
    _exit(0);
  }
  _exit(1);
}

TEST(Threads, TheErrorOfAThreadNamesTheLimits) {
  const std::system_error refused(EAGAIN, std::generic_category());
  EXPECT_THAT(explain_thread_limit(refused), AllOf(StartsWith("no more threads can be started: "), EndsWith(kRemedy)));
  EXPECT_EQ(explain_thread_limit(std::system_error(ENOENT, std::generic_category())), "");
  EXPECT_EQ(explain_thread_limit(std::runtime_error("Resource temporarily unavailable")), "");
}

TEST(ThreadsDeathTest, TooManyAreRefused) {
  const auto user = std::to_string(geteuid() == 0 ? kNobody : geteuid());
  // If the control group has a limit of its own, the message names it too.
  EXPECT_EXIT(start_too_many(), ::testing::ExitedWithCode(0),
              AllOf(StartsWith("no more threads can be started: user " + user + " may have 20 processes and threads together (ulimit -u)"),
                    EndsWith(kRemedy)));
}

void expect_refused(__rlimit_resource_t resource, rlim_t value, const std::function<void()>& check) {
  const rlimit limit{.rlim_cur = value, .rlim_max = value};
  if (setrlimit(resource, &limit) != 0) _exit(2);
  try {
    check();
  } catch (const Error& error) {
    fputs(error.what(), stderr);
    _exit(0);
  }
  _exit(1);
}

TEST(AddressSpaceDeathTest, TooLittleIsRefused) {
  EXPECT_NO_THROW(check_address_space());
  EXPECT_EXIT(expect_refused(RLIMIT_AS, rlim_t{1} << 29, [] { check_address_space(); }), ::testing::ExitedWithCode(0),
              "^this process may use 512.0 MiB of address space \\(ulimit -v\\), but needs at least 1.0 GiB; raise the limit: ulimit -v "
              "unlimited$");
  EXPECT_EXIT(expect_refused(RLIMIT_AS, rlim_t{3} << 30, [] { check_threads(5000); }), ::testing::ExitedWithCode(0),
              "^no more threads can be started: a process may use 3.0 GiB of address space \\(ulimit -v\\)");
}

TEST(OpenFilesDeathTest, TooFewAreRefused) {
  EXPECT_NO_THROW(check_open_files(2));
  EXPECT_EXIT(expect_refused(RLIMIT_NOFILE, 24, [] { check_open_files(2); }), ::testing::ExitedWithCode(0),
              "^each of 2 ranks needs about [0-9]+ open files and connections, but may have 24 \\(ulimit -n\\); raise the limit: ulimit -n "
              "4096$");
}

TEST(OpenFilesDeathTest, TheLimitIsRaised) {
  const auto raise = [] {
    const rlimit limit{.rlim_cur = 24, .rlim_max = 500};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(2);
    check_open_files(2);
    rlimit raised{};
    getrlimit(RLIMIT_NOFILE, &raised);
    _exit(raised.rlim_cur > 45 && raised.rlim_max == 500 ? 0 : 1);
  };
  EXPECT_EXIT(raise(), ::testing::ExitedWithCode(0), "");
}

TEST(Threads, ManyMayRunAtTheSameTime) { EXPECT_NO_THROW(check_threads(100)); }

}  // namespace
}  // namespace trainer::world
