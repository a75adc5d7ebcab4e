#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "distributed/supervision/watches.h"

namespace trainer::supervision {
namespace {

TEST(ConnectionWatch, ReportsTheFirstErrorOnce) {
  std::atomic<int> num_asked = 0;
  std::atomic<int> num_reported = 0;
  std::promise<std::string> reported;
  const auto error = [&] { return ++num_asked < 3 ? std::string() : "the cable broke"; };
  const ConnectionWatch watch(error, [&](const std::string& text) {
    ++num_reported;
    reported.set_value(text);
  });
  EXPECT_EQ(reported.get_future().get(), "the cable broke");
  EXPECT_EQ(num_asked, 3);
  EXPECT_EQ(num_reported, 1);
}

TEST(ConnectionWatch, EndsAtOnceWhenNothingIsWrong) {
  std::promise<void> asked;
  std::atomic<bool> was_asked = false;
  const auto error = [&] {
    if (!was_asked.exchange(true)) asked.set_value();
    return std::string();
  };
  const auto watch = std::make_unique<ConnectionWatch>(error, [](const std::string&) { ADD_FAILURE(); });
  asked.get_future().wait();
}

}  // namespace
}  // namespace trainer::supervision
