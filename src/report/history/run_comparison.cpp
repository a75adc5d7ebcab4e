#include "report/history/run_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <unordered_map>

#include "base/text.h"
#include "config/differences.h"
#include "trainer/error.h"

namespace trainer::history {
namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

Values config_values(const RunRecord& run) {
  Values values;
  try {
    if (run.config.empty()) return values;
    for (const auto& [key, text, facts] : config::values_of(config::parse_yaml(run.config, "config.yaml"))) values.emplace_back(key, text);
  } catch (const UsageError&) {
    // The file is damaged and has no values.
    values.clear();
  }
  return values;
}

std::string inline_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void add_json(const Json& value, const std::string& name, Values& values) {
  if (value.is_object()) {
    for (const auto& [member, inner] : value.items()) add_json(inner, name.empty() ? member : name + "." + member, values);
    return;
  }
  if (!value.is_array()) {
    values.emplace_back(name, inline_text(value));
    return;
  }
  if (std::ranges::none_of(value, &Json::is_structured)) {
    std::vector<std::string> parts;
    for (const auto& element : value) parts.push_back(inline_text(element));
    values.emplace_back(name, join(parts, " "));
    return;
  }
  // For each member, its different values over the ranks.
  std::vector<std::pair<std::string, std::vector<std::string>>> members;
  for (const auto& element : value) {
    Values of_element;
    add_json(element, name, of_element);
    for (auto& [member, text] : of_element) {
      if (member.ends_with(".process_id")) continue;
      auto found = std::ranges::find(members, member, [](const auto& entry) { return entry.first; });
      if (found == members.end()) found = members.insert(members.end(), {member, {}});
      if (std::ranges::find(found->second, text) == found->second.end()) found->second.push_back(text);
    }
  }
  for (const auto& [member, texts] : members) values.emplace_back(member, join(texts, ", "));
}

Values environment_values(const RunRecord& run) {
  Values values;
  if (run.environment.is_object()) add_json(run.environment, "", values);
  return values;
}

Values result_values(const RunRecord& run) {
  Values values = {{"state", to_string(run.state)}};
  if (!run.message.empty()) values.emplace_back("message", run.message);
  values.emplace_back("epoch", progress_of(run));
  values.emplace_back("steps", fmt::format("{}", run.step));
  if (run.best) {
    const auto at = run.steps_per_epoch > 0 ? fmt::format("epoch {}", run.best->epoch + 1) : fmt::format("step {}", run.best->step);
    values.emplace_back("best " + run.best->metric, format_metric(run, run.best->metric, run.best->value) + ", " + at);
  }
  for (const auto& [name, series] : run.validation) {
    if (name != "seconds") values.emplace_back("validation " + name, format_metric(run, name, series.values.back()));
  }
  for (const auto& [name, mean] : run.epoch_means) values.emplace_back("train " + name, format_metric(run, name, mean));
  values.emplace_back("time", format_duration(std::chrono::duration<double>(run.seconds)));
  if (run.images_per_second > 0) values.emplace_back("images per second", fmt::format("{:.0f}", run.images_per_second));
  if (run.num_parameters > 0) values.emplace_back("parameters", fmt::format("{}", run.num_parameters));
  return values;
}

std::vector<Row> rows_of(std::span<const RunRecord> runs, const std::function<Values(const RunRecord&)>& values_of) {
  std::vector<Row> rows;
  std::unordered_map<std::string, size_t> row_of_name;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (auto& [name, value] : values_of(runs[i])) {
      const auto [row, is_new] = row_of_name.emplace(name, rows.size());
      if (is_new) rows.push_back({name, std::vector<std::optional<std::string>>(runs.size())});
      rows[row->second].values[i] = std::move(value);
    }
  }
  return rows;
}

}  // namespace

std::vector<std::string> names_of(std::span<const RunRecord> runs) {
  std::map<std::string, int> uses;
  std::vector<std::string> names;
  for (const auto& run : runs) {
    names.push_back(std::filesystem::absolute(run.folder / "").lexically_normal().parent_path().filename().string());
    ++uses[names.back()];
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (uses[names[i]] > 1) names[i] = runs[i].folder.string();
  }
  return names;
}

bool Row::differs() const {
  return std::ranges::any_of(values, [&](const auto& value) { return value != values.front(); });
}

std::vector<Row> config_rows(std::span<const RunRecord> runs) { return rows_of(runs, config_values); }
std::vector<Row> environment_rows(std::span<const RunRecord> runs) { return rows_of(runs, environment_values); }
std::vector<Row> result_rows(std::span<const RunRecord> runs) { return rows_of(runs, result_values); }

std::string note_of_validation(std::span<const RunRecord> runs, std::span<const Row> config) {
  const auto names = names_of(runs);
  const auto fold = std::ranges::find(config, "dataset.split.fold", &Row::name);
  // Folds of a cross-validation differ on purpose.
  std::map<std::string, size_t> first_of_fold;
  for (size_t i = 0; i < runs.size(); ++i) {
    // Runs without a validation have none.
    const auto samples = text_of(runs[i].environment, "validation_samples");
    if (samples.empty()) continue;
    const auto first = first_of_fold.try_emplace(fold == config.end() ? "" : fold->values[i].value_or(""), i).first->second;
    const auto of_first = text_of(runs[first].environment, "validation_samples");
    if (samples == of_first) continue;
    return fmt::format(
        "{} and {} validate on different samples ({}; {}), so their results cannot be compared; evaluate both on the same "
        "ones with `trainer eval --data`",
        names[first], names[i], of_first, samples);
  }
  return "";
}

}  // namespace trainer::history
