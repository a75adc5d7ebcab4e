#include "reporting/progress_bar.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <memory>

namespace trainer::reporting::test {
namespace {

const Fields kBarFields = {{"epoch 3/100"}, {"step 120/391", 0}, {"loss 1.2345", 4}, {"lr 0.0800", 1}, {"4321 img/s", 2}, {"ETA 3m12s", 3}};

// A stream that stores its output.
class BarStream {
 public:
  BarStream() : stream_(::open_memstream(&data_, &size_)) {}
  ~BarStream() {
    std::fclose(stream_);
    std::free(data_);
  }
  BarStream(const BarStream&) = delete;
  BarStream& operator=(const BarStream&) = delete;
  std::FILE* get() { return stream_; }
  std::string text() {
    std::fflush(stream_);
    return {data_, size_};
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
  std::FILE* stream_;
};

TEST(FormatBar, HasPercentageBarAndFields) {
  EXPECT_EQ(format_bar(kBarFields, 0.3, 200, false),
            " 30% [======              ]  epoch 3/100  step 120/391  loss 1.2345  lr 0.0800  4321 img/s  ETA 3m12s");
  EXPECT_EQ(format_bar({{"step 1/4"}}, 1, 200, false), "100% [====================]  step 1/4");
  EXPECT_EQ(format_bar({{"step 0/4"}}, 0, 200, false), "  0% [                    ]  step 0/4");
}

TEST(FormatBar, FitsIntoItsWidth) {
  for (size_t width = 4; width <= 120; ++width) EXPECT_LE(format_bar(kBarFields, 0.3, width, false).size(), width);
  EXPECT_EQ(format_bar(kBarFields, 0.5, 20, false), " 50%  epoch 3/100");
  EXPECT_EQ(format_bar(kBarFields, 0.5, 15, false), " 50%  epoch 3/1");
}

TEST(FormatBar, LeavesOutTheLeastImportantFieldsForABarOfTenCells) {
  const auto line = [](size_t width) { return format_bar(kBarFields, 0.5, width, false); };
  EXPECT_EQ(line(91), " 50% [=====     ]  epoch 3/100  step 120/391  loss 1.2345  lr 0.0800  4321 img/s  ETA 3m12s");
  EXPECT_EQ(line(87), " 50% [==========          ]  epoch 3/100  loss 1.2345  lr 0.0800  4321 img/s  ETA 3m12s");
  EXPECT_EQ(line(59), " 50% [=======        ]  epoch 3/100  loss 1.2345  ETA 3m12s");
  EXPECT_EQ(line(30), " 50% [=====     ]  epoch 3/100");
  EXPECT_EQ(line(27), " 50% [===    ]  epoch 3/100");
  for (size_t width = 59; width <= 200; ++width) {
    EXPECT_THAT(line(width), ::testing::MatchesRegex(" 50% .=====+     +.  epoch 3/100.*")) << width;
  }
}

TEST(FormatBar, ColourAppliesOnlyToTheBar) { EXPECT_EQ(format_bar({{"step 1/2"}}, 0.5, 22, true), "\x1b[2m 50% [==   ]\x1b[0m  step 1/2"); }

TEST(ProgressBar, IsDrawnOverItselfAndCleared) {
  BarStream stream;
  ProgressBar bar(stream.get(), false);
  bar.clear();
  EXPECT_EQ(stream.text(), "");
  bar.draw({{"step 1/2"}}, 0.5, {});
  bar.draw({{"step 2/2"}}, 1, {});
  bar.clear();
  bar.clear();
  EXPECT_EQ(stream.text(),
            "\r\x1b[K 50% [==========          ]  step 1/2"
            "\r\x1b[K100% [====================]  step 2/2"
            "\r\x1b[K");
}

TEST(ProgressBar, IsErasedBeforeALineAndDueAfterIt) {
  BarStream stream;
  ProgressBar bar(stream.get(), false);
  const auto now = ProgressBar::Clock::now();
  const auto print = [&] { std::fputs("a line\n", stream.get()); };
  bar.print_above(print);
  EXPECT_EQ(stream.text(), "a line\n");
  bar.draw({{"step 1/2"}}, 0.5, now);
  EXPECT_FALSE(bar.due(now));
  bar.print_above(print);
  EXPECT_TRUE(bar.due(now));
  EXPECT_EQ(stream.text(),
            "a line\n"
            "\r\x1b[K 50% [==========          ]  step 1/2"
            "\r\x1b[Ka line\n");
}

TEST(ProgressBar, IsDueTenTimesASecond) {
  BarStream stream;
  ProgressBar bar(stream.get(), false);
  const auto now = ProgressBar::Clock::now();
  EXPECT_TRUE(bar.due(now));
  bar.draw({{"step 1/2"}}, 0.5, now);
  EXPECT_FALSE(bar.due(now + std::chrono::milliseconds(99)));
  EXPECT_TRUE(bar.due(now + std::chrono::milliseconds(100)));
}

TEST(ProgressBar, HasTheWidthOfItsTerminal) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) GTEST_SKIP() << "no pseudo-terminals here";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> side(std::fopen(::ptsname(terminal), "w"), &std::fclose);
  ASSERT_NE(side, nullptr);
  winsize size{};
  size.ws_col = 24;
  ASSERT_EQ(::ioctl(::fileno(side.get()), TIOCSWINSZ, &size), 0);
  ProgressBar bar(side.get(), false);
  bar.draw({{"step 1/2"}}, 0.5, {});
  std::string seen(100, '\0');
  seen.resize(static_cast<size_t>(::read(terminal, seen.data(), seen.size())));
  // One column is left free.
  EXPECT_EQ(seen, "\r\x1b[K 50% [===   ]  step 1/2");
  ::close(terminal);
}

}  // namespace
}  // namespace trainer::reporting::test
