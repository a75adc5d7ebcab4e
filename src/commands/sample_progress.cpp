#include "commands/sample_progress.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "launch/world/host_resources.h"
#include "reporting/values.h"

namespace trainer::commands {

SampleProgress::SampleProgress(std::string what, Logger& logger, int64_t begin, std::chrono::seconds patience, std::string unit)
    : what_(std::move(what)), logger_(logger), begin_(begin), num_done_(begin), patience_(patience), unit_(std::move(unit)) {
  if (world::can_redraw_lines()) bar_.emplace(stderr, world::wants_colour());
}

void SampleProgress::update(int64_t num_done, int64_t size) {
  const auto before = std::exchange(num_done_, num_done);
  const auto now = Clock::now();
  if (now - started_ < patience_ || (bar_ ? !bar_->due(now) : num_done * 10 / size == before * 10 / size)) return;
  const auto count = fmt::format("{} {} of {} {}", what_, num_done, size, unit_);
  if (!bar_) return logger_.info("{}", count);
  const double rate = static_cast<double>(num_done - begin_) / std::chrono::duration<double>(now - started_).count();
  reporting::Fields fields = {{count}, {fmt::format("{:.0f} per second", rate), 0}};
  if (rate > 0) fields.push_back({"ETA " + reporting::format_seconds(static_cast<double>(size - num_done) / rate), 1});
  bar_->draw(fields, static_cast<double>(num_done) / static_cast<double>(size), now);
}

}  // namespace trainer::commands
