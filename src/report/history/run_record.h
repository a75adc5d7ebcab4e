#pragma once
// Reads the files of a run directory. The run may still be writing them, and others may have changed them: missing files, incomplete lines
// and values that are not numbers are skipped. Nothing here changes the folder.

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace trainer::history {

using Json = nlohmann::ordered_json;

enum class State {
  kRunning,  // a process holds the lock of the folder
  kDone,
  kEarly,  // ended by early stopping
  kStopped,
  kFailed,  // ended with an error, or was killed
};
const char* to_string(State state);

// The values of a metric, or of another measurement, in the order of the steps; NaN where the file has none.
struct Series {
  std::vector<int64_t> steps;
  std::vector<double> values;
};

// The best validation, by one metric.
struct Best {
  std::string metric;  // "top1"
  double value = 0;
  bool higher_is_better = true;
  int64_t epoch = 0;  // from 0
  int64_t step = 0;
};

struct Warning {
  int64_t step = 0;
  std::string message;
};

struct RunRecord {
  std::filesystem::path folder;
  State state = State::kFailed;
  std::string message;          // why it failed, or ended early
  int64_t epoch = 0;            // of the latest step, from 0
  int64_t step = 0;             // number of steps so far
  int64_t num_epochs = 0;       // of the whole training; 0: not known
  int64_t num_steps = 0;        // of the whole training, if its length is set in steps; 0: not known
  int64_t steps_per_epoch = 0;  // 0: not known
  int64_t num_parameters = 0;
  double started = 0;            // Unix seconds
  double updated = 0;            // Unix seconds of the latest event
  double seconds = 0;            // of training and validation, without the time between a stop and the resume
  double images_per_second = 0;  // over the whole training time, or of the latest interval; 0: not known
  std::string monitor;           // the metric that selects the best validation, as "validation/top1"
  bool higher_is_better = false;
  std::set<std::string> percentages;  // the metrics that are shown as percentages
  std::optional<Best> best;
  std::map<std::string, Series> train;        // of each logging interval, by the name of the measurement: "loss", "lr", "images_per_second"
  std::map<std::string, double> epoch_means;  // the training metrics of the last whole epoch
  std::map<std::string, Series> validation;   // "loss", "top1", "ema_top1"
  std::vector<Warning> warnings;
  Json environment;  // this and the next three: the content of the JSON file of that name; null if missing or damaged
  Json evaluation;
  Json best_evaluation;
  Json calibration;
  std::string config;  // the resolved experiment file
};

enum class Detail {
  kOverview,  // without `train`, `epoch_means`, evaluations and `calibration`, so that long runs are read in milliseconds
  kAll,
};

// Whether a run has written to the folder.
bool is_run_directory(const std::filesystem::path& folder);

// Throws UsageError if the folder does not exist or is not a run directory, and Error if a file cannot be read.
RunRecord read_run(const std::filesystem::path& folder, Detail detail);

// A text that changes when the files that read_run() reads may have changed.
std::string version_of(const std::filesystem::path& folder);

// The run directories in `folder` and the folders within it, or `folder` itself if it is one; links to folders are not followed. Throws
// UsageError if it does not exist.
std::vector<std::filesystem::path> find_runs(const std::filesystem::path& folder);

// The hosts, and the number of ranks with the type of their device: "node1 and 3 more hosts, 16 x cuda". Empty if they are not known.
std::string place_of(const RunRecord& run);
// The current epoch, or the current step if the length of the run is set in steps: "3/100" or "step 3/100"; "-" if the
// length is not known.
std::string progress_of(const RunRecord& run);
// "93.21%" for one of RunRecord::percentages, else "0.1234"; "-" for NaN.
std::string format_metric(const RunRecord& run, const std::string& name, double value);

// The functions below read JSON of a run directory, to which other programs may have written: values may be missing or have another type.

// Null if there is no such member.
inline const Json& member_of(const Json& object, const char* name) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

inline std::optional<double> number_of(const Json& object, const char* name) {
  const auto& value = member_of(object, name);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

inline std::optional<int64_t> integer_of(const Json& object, const char* name) {
  const auto value = number_of(object, name);
  return value && std::abs(*value) < 9e15 ? std::optional(static_cast<int64_t>(*value)) : std::nullopt;
}

inline std::string text_of(const Json& object, const char* name) {
  const auto& value = member_of(object, name);
  return value.is_string() ? value.get<std::string>() : "";
}

}  // namespace trainer::history
