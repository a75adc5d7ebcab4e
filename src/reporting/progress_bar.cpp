#include "reporting/progress_bar.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainer::reporting {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(100);
// Moves to the beginning of the line and erases to its end.
constexpr const char* kErase = "\r\x1b[K";

}  // namespace

std::string format_bar(const Fields& fields, double fraction, size_t width, bool colour) {
  constexpr size_t kShortest = 5;
  constexpr size_t kWanted = 10;
  constexpr size_t kLongest = 20;
  constexpr size_t kFrame = 3;  // " [" and "]"
  std::string head = fmt::format("{:3.0f}%", 100 * fraction);
  const std::string separator = "  ";
  const size_t wanted = head.size() + kFrame + kWanted + separator.size();
  const auto text = separator + to_line(fitted(fields, width - std::min(width, wanted)));

  const size_t used = head.size() + text.size() + kFrame;
  if (used + kShortest <= width) {
    const size_t cells = std::min(kLongest, width - used);
    const auto full = std::min(cells, static_cast<size_t>(fraction * static_cast<double>(cells)));
    head += " [" + std::string(full, '=') + std::string(cells - full, ' ') + "]";
  }
  const std::string tail = text.substr(0, width - std::min(width, head.size()));
  return colour ? "\x1b[2m" + head + "\x1b[0m" + tail : head + tail;
}

bool ProgressBar::due(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  return !is_drawn_ || now - drawn_at_ >= kInterval;
}

void ProgressBar::draw(const Fields& fields, double fraction, Clock::time_point now) {
  constexpr size_t kWithoutTerminal = 79;
  const std::lock_guard lock(mutex_);
  write(kErase + format_bar(fields, fraction, line_width(stream_).value_or(kWithoutTerminal), colour_));
  is_drawn_ = true;
  drawn_at_ = now;
}

void ProgressBar::clear() {
  const std::lock_guard lock(mutex_);
  erase();
}

void ProgressBar::print_above(const std::function<void()>& print) {
  const std::lock_guard lock(mutex_);
  erase();
  print();
}

void ProgressBar::erase() {
  if (is_drawn_) write(kErase);
  is_drawn_ = false;
}

void ProgressBar::write(const std::string& text) const {
  std::fwrite(text.data(), 1, text.size(), stream_);
  std::fflush(stream_);
}

}  // namespace trainer::reporting
