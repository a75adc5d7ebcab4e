#include "commands/sample_progress.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "base/text.h"
#include "launch/world/host_resources.h"

namespace trainer::commands {

SampleProgress::SampleProgress(std::string what, int64_t begin, int64_t size, Logger& logger)
    : what_(std::move(what)), begin_(begin), size_(size), logger_(logger), tenths_(begin * 10 / size) {
  if (world::can_redraw_lines()) bar_.emplace(stderr, world::wants_colour());
}

void SampleProgress::update(int64_t num_done) {
  if (bar_) {
    draw(num_done);
  } else if (num_done * 10 / size_ > tenths_) {
    tenths_ = num_done * 10 / size_;
    logger_.info("{} {} of {} samples", what_, num_done, size_);
  }
}

void SampleProgress::log_above(const std::function<void()>& log) {
  if (bar_) {
    bar_->print_above(log);
  } else {
    log();
  }
}

void SampleProgress::draw(int64_t num_done) {
  const auto now = reporting::ProgressBar::Clock::now();
  if (!bar_->due(now)) return;
  const double rate = static_cast<double>(num_done - begin_) / std::chrono::duration<double>(now - started_).count();
  reporting::Fields fields = {{fmt::format("{} {} of {} samples", what_, num_done, size_)}, {fmt::format("{:.0f} per second", rate), 0}};
  if (rate > 0) {
    const std::chrono::duration<double> rest(static_cast<double>(size_ - num_done) / rate);
    fields.push_back({"ETA " + format_duration(rest), 1});
  }
  bar_->draw(fields, static_cast<double>(num_done) / static_cast<double>(size_), now);
}

}  // namespace trainer::commands
