#include "report/history/metrics_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/text.h"
#include "trainer/error.h"

namespace trainer::history {
namespace {

// Keys that identify a line; the others are measurements.
constexpr std::array<std::string_view, 5> kHeads = {"event", "time", "epoch", "step", "num_samples"};

// The time of a training event, if the line has the form in which runs write it; not set for other lines.
std::optional<double> time_of_train(std::string_view line) {
  constexpr std::string_view kPrefix = R"({"event":"train","time":)";
  if (!line.starts_with(kPrefix)) return std::nullopt;
  const auto rest = line.substr(kPrefix.size());
  const auto time = parse_number<double>(rest.substr(0, rest.find(',')));
  return time && std::isfinite(*time) ? time : std::nullopt;
}

State state_of_reason(const std::string& reason) {
  if (reason == "done") return State::kDone;
  if (reason == "early") return State::kEarly;
  return reason == "stopped" ? State::kStopped : State::kFailed;
}

class MetricsReader {
 public:
  MetricsReader(const std::filesystem::path& file, Detail detail, RunRecord& run) : file_(file), detail_(detail), run_(run) {}

  void read() {
    const auto content = read_file(file_);
    std::string_view text = content;
    while (!text.empty()) {
      const auto end = text.find('\n');
      if (end == text.npos) break;  // incomplete: the run is writing this line, or was killed meanwhile
      read_line(text.substr(0, end));
      text.remove_prefix(end + 1);
    }
    parse_pending();
  }

 private:
  void read_line(std::string_view line) {
    // An overview needs only the latest training event before an event of another kind, and the times of the earlier ones, which are
    // therefore not parsed.
    if (const auto time = detail_ == Detail::kOverview ? time_of_train(line) : std::nullopt) {
      pending_ = line;
      advance_to(*time);
      return;
    }
    parse_pending();
    on_event(parse_json(line, file_));
  }

  void parse_pending() {
    if (!pending_.empty()) on_event(parse_json(pending_, file_));
    pending_ = {};
  }

  void on_event(const Json& event) {
    if (!event.is_object()) return;
    const auto kind = text_of(event, "event");
    // A resumed run repeats the event of its checkpoint, without its durations (Jsonl::on_start); it is not a new event.
    if (kind == "checkpoint" && member_of(event, "seconds").is_null()) return;
    const auto now = number_of(event, "time").value_or(run_.updated);
    if (kind == "start" || kind == "resume") {
      begin_session(event, now);
      run_.updated = now;
    } else {
      advance_to(now);
    }
    run_.epoch = integer_of(event, "epoch").value_or(run_.epoch);
    run_.step = integer_of(event, "step").value_or(run_.step);
    if (kind == "train") {
      run_.images_per_second = number_of(event, "images_per_second").value_or(run_.images_per_second);
      if (detail_ == Detail::kAll) add_values(event, run_.train);
    } else if (kind == "validation") {
      add_values(event, run_.validation);
    } else if (kind == "warning") {
      run_.warnings.push_back({run_.step, text_of(event, "message")});
    } else if (kind == "end") {
      run_.state = state_of_reason(text_of(event, "reason"));
      run_.message = text_of(event, "message");
      run_.images_per_second = number_of(event, "images_per_second").value_or(run_.images_per_second);
    }
  }

  void advance_to(double now) {
    // The clock may have been set back.
    if (run_.updated > 0) run_.seconds += std::max(now - run_.updated, 0.0);
    run_.updated = now;
  }

  void begin_session(const Json& event, double now) {
    if (run_.started == 0) run_.started = now;
    run_.state = State::kFailed;  // unless an event "end" follows
    run_.message.clear();
    run_.num_epochs = integer_of(event, "num_epochs").value_or(0);
    run_.num_steps = integer_of(event, "num_steps").value_or(0);
    run_.steps_per_epoch = integer_of(event, "steps_per_epoch").value_or(0);
    run_.num_parameters = integer_of(event, "num_parameters").value_or(0);
    run_.monitor = text_of(event, "monitor");
    run_.higher_is_better = text_of(event, "mode") == "max";
    run_.percentages.clear();
    for (const auto& [name, metric] : member_of(event, "metrics").items()) {
      if (text_of(metric, "format") == "percent") run_.percentages.insert(name);
    }
  }

  void add_values(const Json& event, std::map<std::string, Series>& series) const {
    for (const auto& [name, value] : event.items()) {
      const bool is_head = std::ranges::find(kHeads, name) != kHeads.end();
      if (is_head || !(value.is_number() || value.is_null())) continue;
      auto& values = series[name];
      values.steps.push_back(run_.step);
      values.values.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
    }
  }

  const std::filesystem::path& file_;
  Detail detail_;
  RunRecord& run_;
  std::string_view pending_;  // the latest training event, not parsed yet
};

}  // namespace

void read_metrics_file(const std::filesystem::path& file, Detail detail, RunRecord& run) {
  std::error_code missing;
  if (!std::filesystem::exists(file, missing)) return;
  MetricsReader(file, detail, run).read();
}

Json parse_json(std::string_view text, const std::filesystem::path& file) {
  if (count_json_levels(text) > kMostJsonLevels) {
    throw DataError(fmt::format("{}: its JSON has more than {} levels, which no run of trainer writes; restore the file or remove it",
                                file.string(), kMostJsonLevels));
  }
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace trainer::history
