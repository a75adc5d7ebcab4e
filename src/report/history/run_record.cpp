#include "report/history/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>
#include <string_view>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/metric_order.h"
#include "base/text.h"
#include "trainer/error.h"

namespace trainer::history {
namespace {

// The depth to which a folder is searched for run directories.
constexpr int kMaxDepth = 4;

std::string read_if_there(const std::filesystem::path& file) {
  std::error_code missing;
  return std::filesystem::exists(file, missing) ? read_file(file) : "";
}

// Returns a discarded value if the text is not JSON. Throws a DataError that names `file`, the source of the text, if the text is nested so
// deeply that copying or printing the value, both recursive, could overflow the stack.
Json parse_json(std::string_view text, const std::filesystem::path& file) {
  if (count_json_levels(text) > kMostJsonLevels) {
    throw DataError(fmt::format("{}: its JSON has more than {} levels, which no run of trainer writes; restore the file or remove it",
                                file.string(), kMostJsonLevels));
  }
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// Returns null if the file does not exist or is damaged. Throws like parse_json().
Json read_json(const std::filesystem::path& file) {
  auto value = parse_json(read_if_there(file), file);
  return value.is_discarded() ? Json() : value;
}

std::optional<Best> find_best(const RunRecord& run) {
  const auto metric = run.monitor.substr(run.monitor.find('/') + 1);
  const auto found = run.validation.find(metric);
  if (found == run.validation.end()) return std::nullopt;
  const auto& [steps, values] = found->second;
  std::optional<size_t> best;
  for (size_t i = 0; i < values.size(); ++i) {
    if (is_better(values[i], best ? std::optional(values[*best]) : std::nullopt, run.higher_is_better)) best = i;
  }
  if (!best) return std::nullopt;
  const auto epoch = run.steps_per_epoch > 0 ? std::max<int64_t>(steps[*best] - 1, 0) / run.steps_per_epoch : 0;
  return Best{.metric = metric, .value = values[*best], .higher_is_better = run.higher_is_better, .epoch = epoch, .step = steps[*best]};
}

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

// Adds the content of metrics.jsonl to a RunRecord. The state is the one with which the run ended, or kFailed if the file has no event
// "end" for its last session. With Detail::kOverview, of consecutive training events only the last is used, and of the others only their
// times.
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

// The training metrics in the last whole line of metrics.csv.
std::map<std::string, double> read_epoch_means(const std::string& table) {
  std::istringstream lines(table.substr(0, table.rfind('\n') + 1));
  std::string header, last;
  std::getline(lines, header);
  for (std::string line; std::getline(lines, line);) last = line;
  std::istringstream names(header), cells(last);
  std::map<std::string, double> means;
  const std::string prefix = "train_";
  for (std::string name, cell; std::getline(names, name, ',') && std::getline(cells, cell, ',');) {
    const auto value = parse_number<double>(cell);
    if (name.starts_with(prefix) && value) means[name.substr(prefix.size())] = *value;
  }
  return means;
}

void find_runs(const std::filesystem::path& folder, int depth, std::vector<std::filesystem::path>& found) {
  if (is_run_directory(folder)) {
    found.push_back(folder);
    return;
  }
  if (depth == kMaxDepth) return;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable)) {
    std::error_code ignored;
    if (entry.is_directory(ignored) && !entry.is_symlink(ignored)) find_runs(entry.path(), depth + 1, found);
  }
}

void refuse_missing(const std::filesystem::path& folder, const char* remedy) {
  std::error_code unreadable;
  if (std::filesystem::is_directory(folder, unreadable)) return;
  throw UsageError(fmt::format("{}: there is no such folder; {}", folder.string(), remedy));
}

}  // namespace

const char* to_string(State state) {
  constexpr std::array kNames = {"running", "done", "early", "stopped", "failed"};
  return kNames.at(static_cast<size_t>(state));
}

bool is_run_directory(const std::filesystem::path& folder) {
  std::error_code unreadable;
  return std::ranges::any_of(std::array{"metrics.jsonl", "environment.json", "summary.json"},
                             [&](const char* name) { return std::filesystem::exists(folder / name, unreadable); });
}

RunRecord read_run(const std::filesystem::path& folder, Detail detail) {
  refuse_missing(folder, "name the folder of a run, such as runs/<experiment>; `trainer runs` lists them");
  if (!is_run_directory(folder)) {
    throw UsageError(fmt::format("{}: this is not a run directory, because it has no metrics.jsonl; `trainer runs {}` lists the runs in it",
                                 folder.string(), folder.string()));
  }
  RunRecord run;
  run.folder = folder;
  // The lock is checked before the files are read, so that a run that ends in between counts as running and not as failed.
  const bool is_running = is_locked(folder / ".lock");
  run.config = read_if_there(folder / "config.yaml");
  run.environment = read_json(folder / "environment.json");
  if (detail == Detail::kAll) {
    run.evaluation = read_json(folder / "evaluation.json");
    run.best_evaluation = read_json(folder / "best_evaluation.json");
    run.calibration = read_json(folder / "calibration.json");
    run.epoch_means = read_epoch_means(read_if_there(folder / "metrics.csv"));
  }
  std::error_code missing;
  if (const auto file = folder / "metrics.jsonl"; std::filesystem::exists(file, missing)) MetricsReader(file, detail, run).read();
  if (is_running) run.state = State::kRunning;
  run.best = find_best(run);
  return run;
}

std::string version_of(const std::filesystem::path& folder) {
  std::string version = is_locked(folder / ".lock") ? "running" : "ended";
  for (const char* name :
       {"metrics.jsonl", "metrics.csv", "evaluation.json", "best_evaluation.json", "calibration.json", "environment.json", "config.yaml"}) {
    std::error_code missing;
    const auto size = std::filesystem::file_size(folder / name, missing);
    const auto time = std::filesystem::last_write_time(folder / name, missing).time_since_epoch().count();
    version += missing ? "-" : fmt::format("-{:x}.{:x}", size, time);
  }
  return version;
}

std::vector<std::filesystem::path> find_runs(const std::filesystem::path& folder) {
  refuse_missing(folder, "name the folder that holds the runs, by default runs/ (output_dir of the experiment file)");
  std::vector<std::filesystem::path> found;
  find_runs(folder, 0, found);
  return found;
}

std::string place_of(const RunRecord& run) {
  const auto& ranks = member_of(run.environment, "ranks");
  if (!ranks.is_array() || ranks.empty()) return "";
  std::vector<std::string> hosts;
  for (const auto& rank : ranks) {
    if (const auto host = text_of(rank, "host"); std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
  }
  auto device = text_of(ranks.front(), "device");
  device = device.substr(0, device.find(':'));
  const auto more = hosts.size() > 1 ? fmt::format(" and {}", counted(hosts.size() - 1, "more host")) : "";
  return fmt::format("{}{}, {}{}", hosts.front(), more, ranks.size() > 1 ? fmt::format("{} x ", ranks.size()) : "", device);
}

std::string progress_of(const RunRecord& run) {
  if (run.num_steps > 0) return fmt::format("step {}/{}", run.step, run.num_steps);
  if (run.num_epochs == 0) return "-";
  return fmt::format("{}/{}", run.step == 0 ? 0 : run.epoch + 1, run.num_epochs);
}

std::string format_metric(const RunRecord& run, const std::string& name, double value) {
  if (std::isnan(value)) return "-";
  return run.percentages.contains(name.starts_with("ema_") ? name.substr(4) : name) ? fmt::format("{:.2f}%", 100 * value)
                                                                                    : fmt::format("{:.4f}", value);
}

}  // namespace trainer::history
