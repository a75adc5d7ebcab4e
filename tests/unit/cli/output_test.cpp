#include "cli/output.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace trainer::cli {
namespace {

template <class Exception>
void throw_in_thread(const Exception& exception) {
  run_program([&] {
    std::thread([&] { throw exception; }).join();
    return ExitCode::kDone;
  });
}

TEST(UncaughtExceptionDeathTest, ALackOfMemoryOrThreadsEndsTheProgramWithAMessage) {
  EXPECT_EXIT(throw_in_thread(std::bad_alloc()), ::testing::ExitedWithCode(1), "^error: out of memory; choose smaller batches");
  EXPECT_EXIT(throw_in_thread(std::system_error(EAGAIN, std::generic_category())), ::testing::ExitedWithCode(1),
              "^error: no more threads can be started: ");
  EXPECT_EXIT(throw_in_thread(std::logic_error("a mistake")), ::testing::KilledBySignal(SIGABRT), "a mistake");
}

}  // namespace
}  // namespace trainer::cli
