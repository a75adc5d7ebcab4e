#pragma once
// Runs that differ by overrides of one experiment file: the folds of `trainer crossval` and the combinations of `trainer sweep`.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/experiment.h"
#include "report/history/run_record.h"

namespace trainer::commands {

struct RunSet {
  struct Run {
    std::string name;                                // of its folder
    std::vector<std::string> overrides;              // after those of the command line
    std::map<std::string, std::string> values = {};  // of the keys that differ between the runs
  };

  std::string name;                      // "sweep": of the file with the results, and in the folder's default name
  bool continues_after_failure = false;  // trains the other runs after one has failed, for example because its loss is not finite
  std::string config = {};
  std::vector<std::string> overrides = {};  // of all runs
  std::filesystem::path folder = {};        // with a folder for each run
  std::optional<int64_t> num_processes = {};
  bool prints_json = false;
  std::vector<Run> runs = {};

  std::filesystem::path folder_of(const Run& run) const { return folder / run.name; }
};

// Adds --config, --run-dir, --nproc-per-node and --json. `folders`: the folders of the runs, for the help.
void add_run_set(CLI::App& app, RunSet& set, const std::string& folders);
// Sets the folder if the command line does not.
void choose_folder(RunSet& set);

// The experiment of a run. Throws UsageError, also if it has no validations, whose results are compared.
config::Experiment load(const RunSet& set, const RunSet::Run& run);

// Trains the runs one after another, each in its own process, which resumes its run if there is one. Then writes `results` to the set's
// file, and prints them, as JSON or with `print_results`. Throws Error after a stop request, and when runs have failed; the results are
// written and printed before that unless the command ends at once.
void train_all(const RunSet& set, const std::function<history::Json()>& results,
               const std::function<void(const history::Json&)>& print_results);

// The best validation of a run, as written by it; an empty object if it has none.
history::Json best_validation(const std::filesystem::path& folder);

// The runs, and the groups of runs that differ only in their seed or fold, in the order of their first runs, with the mean of each metric
// and its sample standard deviation if it has several values. `validations`: the best one of each run, or an empty object.
history::Json describe_runs(const RunSet& set, const std::vector<history::Json>& validations);

// Prints a table with a line for each title and its metrics.
struct MetricsRow {
  std::string title;
  std::string count;  // of images or runs
  history::Json metrics;
};
void print_metrics(const std::string& title, const std::string& count, const std::vector<MetricsRow>& rows);

// The runs of `trainer sweep`.

// The values of "0.1,[1, 2],{name: sgd, lr: 1}", which is read as a YAML list; one value if that is not possible.
std::vector<std::string> split_values(const std::string& text);

// A key with several values.
using VariedKey = std::pair<std::string, std::vector<std::string>>;

// Moves the overrides that list several values, such as "seed=1,2", to the result. Throws one UsageError with all problems: a value
// or a key that is given twice, and no list at all.
std::vector<VariedKey> take_varied_keys(std::vector<std::string>& overrides);

// A run for each combination of the values, those of the last key changing first. A run is named by its values, "lr=0.1,seed=2", so that a
// longer list continues a sweep. A key's last part stands for it if that is unique.
std::vector<RunSet::Run> combine(const std::vector<VariedKey>& keys);

}  // namespace trainer::commands
