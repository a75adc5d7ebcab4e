#include "world/threads.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <system_error>

namespace trainer::world {
namespace {

TEST(Threads, TheErrorOfAThreadNamesTheLimits) {
  const std::system_error refused(EAGAIN, std::generic_category());
  EXPECT_EQ(explain_thread_limit(refused), "no more threads can be started: " + describe_process_limits() +
                                               "; raise the limit, end other processes, or set fewer runtime.threads and "
                                               "dataloader.num_workers");
  EXPECT_EQ(explain_thread_limit(std::system_error(ENOENT, std::generic_category())), "");
  EXPECT_EQ(explain_thread_limit(std::runtime_error("Resource temporarily unavailable")), "");
}

TEST(Threads, ManyMayRunAtTheSameTime) { EXPECT_NO_THROW(check_threads(100)); }

}  // namespace
}  // namespace trainer::world
