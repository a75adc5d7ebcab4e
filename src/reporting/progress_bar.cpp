#include "reporting/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace trainer::reporting {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(100);
// Moves to the beginning of the line and erases the line.
constexpr const char* kErase = "\r\x1b[K";

}  // namespace

std::string format_bar(std::vector<std::string> fields, double fraction, size_t width, bool colour) {
  constexpr size_t kShortest = 5;
  constexpr size_t kLongest = 20;
  constexpr size_t kFrame = 3;  // " [" and "]"
  const std::string percent = fmt::format("{:3.0f}%", 100 * fraction);
  const auto text = [&] { return "  " + join(fields, "  "); };
  while (fields.size() > 2 && percent.size() + text().size() > width) fields.erase(fields.end() - 2);

  std::string head = percent;
  const size_t used = percent.size() + text().size() + kFrame;
  if (used + kShortest <= width) {
    const size_t cells = std::min(kLongest, width - used);
    const auto full = std::min(cells, static_cast<size_t>(fraction * static_cast<double>(cells)));
    head += " [" + std::string(full, '=') + std::string(cells - full, ' ') + "]";
  }
  const std::string tail = text().substr(0, width - std::min(width, head.size()));
  return colour ? "\x1b[2m" + head + "\x1b[0m" + tail : head + tail;
}

bool ProgressBar::due(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  return now - drawn_ >= kInterval;
}

void ProgressBar::draw(std::vector<std::string> fields, double fraction, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  // Many terminals wrap when their last column is written.
  line_ = format_bar(std::move(fields), fraction, width() - 1, colour_);
  drawn_ = now;
  write(kErase + line_);
}

void ProgressBar::clear() {
  const std::lock_guard lock(mutex_);
  if (!line_.empty()) write(kErase);
  line_.clear();
}

void ProgressBar::print_above(const std::function<void()>& print) {
  const std::lock_guard lock(mutex_);
  if (!line_.empty()) write(kErase);
  print();
  if (!line_.empty()) write(line_);
}

size_t ProgressBar::width() const {
  winsize size{};
  if (::ioctl(::fileno(stream_), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

void ProgressBar::write(const std::string& text) const {
  std::fwrite(text.data(), 1, text.size(), stream_);
  std::fflush(stream_);
}

}  // namespace trainer::reporting
