#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
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

TEST(Threads, ManyMayRunAtTheSameTime) { EXPECT_NO_THROW(check_threads(100)); }

}  // namespace
}  // namespace trainer::world
