// `trainer sweep`: trains once for each combination of values of some keys, and compares the results.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>

#include "base/random.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "commands/run_set.h"
#include "config/yaml.h"

namespace trainer::commands {
namespace {

using history::Json;

// The values in a folder's name, with other characters than those of numbers and words replaced; then a hash keeps the name unique.
std::string name_of_value(const std::string& value) {
  constexpr size_t kLongest = 40;
  std::string name;
  for (const char c : value) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_' || c == '+';
    if (is_plain || !name.ends_with('-')) name += is_plain ? c : '-';
  }
  if (name == value && name.size() <= kLongest) return name;
  return fmt::format("{}-{:08x}", name.substr(0, kLongest), fnv1a(value) & 0xffffffff);
}

// Refuses what any of the runs would refuse, with each problem once.
void check_runs(const RunSet& set) {
  std::vector<std::string> problems;
  for (const auto& run : set.runs) {
    try {
      load(set, run);
    } catch (const UsageError& error) {
      std::istringstream lines(error.what());
      for (std::string line; std::getline(lines, line);) {
        if (std::ranges::find(problems, line) == problems.end()) problems.push_back(line);
      }
    }
  }
  if (!problems.empty()) throw UsageError(join(problems, "\n"));
}

std::string title_of(const Json& values) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : values.items()) parts.push_back(fmt::format("{}={}", key, value.get<std::string>()));
  return parts.empty() ? "all seeds" : join(parts, " ");
}

void print_sweep(const Json& sweep) {
  std::vector<MetricsRow> rows;
  for (const auto& group : sweep["groups"]) {
    auto metrics = Json::object();
    for (const auto& [name, value] : group["mean"].items()) {
      const auto deviation = group["deviation"].find(name);
      metrics[name] = fmt::format("{:.4f}", value.get<double>());
      if (deviation != group["deviation"].end())
        metrics[name] = fmt::format("{:.4f} ± {:.4f}", value.get<double>(), deviation->get<double>());
    }
    rows.push_back({title_of(group["values"]), std::to_string(group["num_runs"].get<int64_t>()), std::move(metrics)});
  }
  print_metrics("best validation (mean ± standard deviation)", "runs", rows);
}

}  // namespace

std::vector<std::string> split_values(const std::string& text) {
  try {
    std::vector<std::string> values;
    for (const auto& item : config::parse_yaml('[' + text + ']', "").items) values.push_back(config::to_inline_yaml(item));
    return values;
  } catch (const UsageError&) {
    return {text};
  }
}

std::vector<VariedKey> take_varied_keys(std::vector<std::string>& overrides) {
  std::vector<VariedKey> varied;
  std::vector<std::string> problems;
  std::set<std::string> keys;
  std::erase_if(overrides, [&](const std::string& text) {
    const auto equals = std::min(text.find('='), text.size() - 1);
    const auto key = text.substr(0, equals);
    if (!keys.insert(key).second)
      problems.push_back(fmt::format("{} is given twice; give all of its values at once, as in {}=1,2", key, key));
    auto values = split_values(text.substr(equals + 1));
    if (values.size() < 2) return false;
    if (std::set<std::string>(values.begin(), values.end()).size() < values.size())
      problems.push_back(fmt::format("{}: a value is given twice; remove one of them", text));
    varied.emplace_back(key, std::move(values));
    return true;
  });
  if (varied.empty()) problems.emplace_back("no key has several values; give some, such as optimizer.lr=0.1,0.01 or seed=1,2,3");
  if (!problems.empty()) throw UsageError(join(problems, "\n"));
  return varied;
}

std::vector<RunSet::Run> combine(const std::vector<VariedKey>& keys) {
  const auto last_part = [](const std::string& key) { return key.substr(key.rfind('.') + 1); };
  std::vector<RunSet::Run> runs(1);
  for (const auto& [key, values] : keys) {
    const auto is_same = [&](const VariedKey& other) { return last_part(other.first) == last_part(key); };
    const auto short_key = std::ranges::count_if(keys, is_same) == 1 ? last_part(key) : key;
    std::vector<RunSet::Run> longer;
    for (const auto& run : runs) {
      for (const auto& value : values) {
        auto& added = longer.emplace_back(run);
        added.name += fmt::format("{}{}={}", run.name.empty() ? "" : ",", short_key, name_of_value(value));
        added.overrides.push_back(fmt::format("{}={}", key, value));
        added.values[key] = value;
      }
    }
    runs = std::move(longer);
  }
  return runs;
}

ExitCode sweep(const std::vector<std::string>& args) {
  RunSet set{.name = "sweep", .continues_after_failure = true};
  CLI::App app(
      "Trains once for each combination of the values of keys, such as optimizer.lr=0.1,0.01 seed=1,2,3. Prints the best validations, with "
      "mean and standard deviation over the seeds, and writes them to sweep.json. The same command continues after a stop or a failure.",
      "trainer sweep");
  add_run_set(app, set, "of the sweep, such as lr=0.1,seed=2");
  app.add_option("overrides", set.overrides,
                 "keys with one value, for all runs, or several, as in a YAML list: commas within [], {} or quotes belong to a value")
      ->type_name("key=value[,value...]");
  cli::parse(app, args);
  set.runs = combine(take_varied_keys(set.overrides));
  check_runs(set);
  choose_folder(set);
  const auto results = [&] {
    std::vector<Json> validations;
    for (const auto& run : set.runs) validations.push_back(best_validation(set.folder_of(run)));
    return describe_runs(set, validations);
  };
  train_all(set, results, print_sweep);
  return ExitCode::kDone;
}

}  // namespace trainer::commands
