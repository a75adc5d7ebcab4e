#include "report/report_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "report/history/run_comparison.h"

namespace trainer::report {
namespace {

using history::Json;
using history::RunRecord;

// The most points of one measurement, over all runs together. Each run gets an equal share, within the two limits below.
constexpr size_t kMostPointsOfAll = 6000;
constexpr size_t kMostPoints = 1500;
constexpr size_t kFewestPoints = 100;
constexpr size_t kMostWarnings = 50;

// Rounds to the number of digits that a chart can show.
Json rounded(double value) {
  if (!std::isfinite(value)) return {};
  return std::strtod(fmt::format("{:.5g}", value).c_str(), nullptr);
}

Json series_of(const std::map<std::string, history::Series>& all, size_t max_points) {
  Json result = Json::object();
  for (const auto& [name, series] : all) {
    const auto few = shortened(series, max_points);
    auto values = Json::array();
    for (const auto value : few.values) values.push_back(rounded(value));
    result[name] = {{"steps", few.steps}, {"values", std::move(values)}};
  }
  return result;
}

// Texts come from files that others may have written: invisible characters, and those that change the direction of a line, are escaped.
Json with_visible_text(const Json& value) {
  if (value.is_string()) return printable(value.get_ref<const std::string&>());
  if (!value.is_structured()) return value;
  Json result = value.is_array() ? Json::array() : Json::object();
  for (const auto& [key, element] : value.items()) {
    value.is_array() ? result.push_back(with_visible_text(element)) : void(result[printable(key)] = with_visible_text(element));
  }
  return result;
}

Json warnings_of(const RunRecord& run) {
  auto result = Json::array();
  const auto first = run.warnings.size() - std::min(run.warnings.size(), kMostWarnings);
  for (auto i = first; i < run.warnings.size(); ++i)
    result.push_back({{"step", run.warnings[i].step}, {"message", run.warnings[i].message}});
  return result;
}

Json with_pictures(Json evaluation, const RunRecord& run, const PictureReader& read_pictures) {
  if (evaluation.is_null() || evaluation["mistakes"].empty() || evaluation["split"] != "validation" || !read_pictures) return evaluation;
  const auto pictures = read_pictures(run, evaluation);
  const auto set = [&](const char* key, const std::vector<std::string>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (!values[i].empty()) evaluation["mistakes"][i][key] = values[i];
    }
  };
  set("image", pictures.data_urls);
  set("heatmap", pictures.heatmaps);
  set("name", pictures.names);
  if (!pictures.note.empty()) evaluation["images_note"] = pictures.note;
  return evaluation;
}

Json rows_of(const std::vector<history::Row>& rows) {
  auto result = Json::array();
  for (const auto& row : rows) {
    auto values = Json::array();
    for (const auto& value : row.values) values.push_back(value ? Json(*value) : Json());
    result.push_back({{"name", row.name}, {"values", std::move(values)}, {"differs", row.differs()}});
  }
  return result;
}

using history::integer_of;
using history::member_of;
using history::number_of;
using history::text_of;

constexpr size_t kMostPairs = 20;
constexpr size_t kMostMistakes = 64;
constexpr size_t kMostNumbers = 50;

using Matrix = std::vector<std::vector<int64_t>>;

// Empty if there is no such member, or if it is not a list.
const Json& list_of(const Json& object, const char* name) {
  static const Json kNone = Json::array();
  const auto& list = member_of(object, name);
  return list.is_array() ? list : kNone;
}

// Those of these members that are numbers.
Json numbers_of(const Json& object, std::initializer_list<const char*> names) {
  Json numbers = Json::object();
  for (const auto* name : names) {
    if (const auto& value = member_of(object, name); value.is_number()) numbers[name] = value;
  }
  return numbers;
}

// Empty if the member is not a square matrix of integers.
Matrix matrix_of(const Json& object, const char* name) {
  Matrix matrix;
  const auto& rows = list_of(object, name);
  for (const auto& row : rows) {
    if (!row.is_array() || row.size() != rows.size() || !std::ranges::all_of(row, &Json::is_number_integer)) return {};
    matrix.push_back(row.get<std::vector<int64_t>>());
  }
  return matrix;
}

Json share(int64_t part, int64_t whole) { return whole > 0 ? Json(static_cast<double>(part) / static_cast<double>(whole)) : Json(); }

Json classes_of(const Json& source) {
  auto classes = Json::array();
  for (const auto& one : list_of(source, "classes")) {
    const auto name = text_of(one, "name");
    Json of_class = {{"name", name.empty() ? std::to_string(classes.size()) : name},
                     {"num_samples", integer_of(one, "num_samples").value_or(0)}};
    // Only multi-label evaluations have the last two.
    of_class.update(numbers_of(one, {"recall", "precision", "f1", "average_precision", "threshold"}));
    classes.push_back(std::move(of_class));
  }
  return classes;
}

Json pairs_of(const Matrix& matrix) {
  struct Pair {
    size_t actual, predicted;
    int64_t count;
  };
  std::vector<Pair> pairs;
  for (size_t actual = 0; actual < matrix.size(); ++actual) {
    for (size_t predicted = 0; predicted < matrix.size(); ++predicted) {
      if (actual != predicted && matrix[actual][predicted] > 0) pairs.push_back({actual, predicted, matrix[actual][predicted]});
    }
  }
  std::ranges::stable_sort(pairs, std::ranges::greater(), &Pair::count);
  pairs.resize(std::min(pairs.size(), kMostPairs));
  auto result = Json::array();
  for (const auto& [actual, predicted, count] : pairs) {
    result.push_back({{"actual", actual},
                      {"predicted", predicted},
                      {"count", count},
                      {"share", share(count, std::reduce(matrix[actual].begin(), matrix[actual].end()))}});
  }
  return result;
}

// Of the first `most` elements of the list that have all the numbers in `names`, returns these numbers; other elements are skipped.
Json with_numbers(const Json& object, const char* list, std::initializer_list<const char*> names, size_t most = 100) {
  auto result = Json::array();
  for (const auto& element : list_of(object, list)) {
    if (result.size() == most) break;
    if (auto numbers = numbers_of(element, names); numbers.size() == names.size()) result.push_back(std::move(numbers));
  }
  return result;
}

Json metrics_of(const Json& object) {
  Json metrics = Json::object();
  if (!object.is_object()) return metrics;
  for (const auto& [name, value] : object.items()) {
    if (value.is_number() && name != "epoch" && name != "step" && name != "num_samples") metrics[name] = value;
  }
  return metrics;
}

// The results of a regression: for each predicted number, its errors and the stored pairs of target and prediction.
Json regression_of(const Json& source) {
  auto result = Json::array();
  const auto& targets = list_of(source, "targets");
  const auto& predictions = list_of(source, "predictions");
  for (const auto& one : list_of(source, "numbers")) {
    if (result.size() == kMostNumbers) break;
    Json number = {{"name", text_of(one, "name")}, {"pairs", Json::array()}};
    number.update(numbers_of(one, {"mae", "rmse", "r2"}));
    for (size_t i = 0; targets.size() == predictions.size() && i < targets.size(); ++i) {
      const auto at = [&](const Json& rows) {
        return rows[i].is_array() && result.size() < rows[i].size() ? rows[i][result.size()] : Json();
      };
      const auto target = at(targets);
      const auto prediction = at(predictions);
      if (target.is_number() && prediction.is_number()) number["pairs"].push_back(Json::array({target, prediction}));
    }
    result.push_back(std::move(number));
  }
  return result;
}

// `source`: the content of an evaluation.json.
Json evaluation_from(const Json& source) {
  const auto matrix = matrix_of(source, "confusion");
  const auto split = text_of(source, "split");
  Json result = {{"split", split.empty() ? "validation" : split},
                 {"step", integer_of(source, "step").value_or(0)},
                 {"num_samples", integer_of(source, "num_samples").value_or(0)},
                 {"metrics", metrics_of(member_of(source, "metrics"))},
                 {"classes", classes_of(source)},
                 {"pairs", pairs_of(matrix)},
                 {"calibration", with_numbers(source, "calibration", {"confidence", "accuracy", "count"})},
                 {"mistakes", with_numbers(source, "mistakes", {"index", "label", "predicted", "confidence"}, kMostMistakes)}};
  if (!matrix.empty() && matrix.size() <= kMostMatrixClasses) result["confusion"] = matrix;
  if (const auto together = matrix_of(source, "co_occurrence"); !together.empty() && together.size() <= kMostMatrixClasses) {
    result["co_occurrence"] = together;
  }
  if (auto numbers = regression_of(source); !numbers.empty()) result["numbers"] = std::move(numbers);
  return result;
}

}  // namespace

Json make_data(std::span<const RunRecord> runs, const DataOptions& options) {
  Json data = {{"generated", options.now}, {"live", options.is_live}, {"runs", Json::array()}};
  const auto max_points = std::clamp(kMostPointsOfAll / std::max<size_t>(1, runs.size()), kFewestPoints, kMostPoints);
  const auto names = history::names_of(runs);
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& run = runs[i];
    Json best, epoch_means = Json::object();
    for (const auto& [name, value] : run.epoch_means) epoch_means[name] = rounded(value);
    if (run.best) {
      best = {{"metric", run.best->metric},
              {"value", rounded(run.best->value)},
              {"higher_is_better", run.best->higher_is_better},
              {"epoch", run.best->epoch},
              {"step", run.best->step}};
    }
    data["runs"].push_back({{"name", names[i]},
                            {"state", to_string(run.state)},
                            {"message", run.message},
                            {"progress", progress_of(run)},
                            {"step", run.step},
                            {"steps_per_epoch", run.steps_per_epoch},
                            {"num_parameters", run.num_parameters},
                            {"started", run.started},
                            {"seconds", run.seconds},
                            {"images_per_second", rounded(run.images_per_second)},
                            {"where", place_of(run)},
                            {"best", std::move(best)},
                            {"warnings", warnings_of(run)},
                            {"train", series_of(run.train, max_points)},
                            {"epoch_means", std::move(epoch_means)},
                            {"validation", series_of(run.validation, max_points)},
                            {"evaluation", with_pictures(make_evaluation(run), run, options.read_pictures)},
                            {"best_evaluation", with_pictures(make_best_evaluation(run), run, options.read_pictures)},
                            {"calibration", make_calibration(run)}});
  }
  std::set<std::string> percentages;
  for (const auto& run : runs) percentages.insert(run.percentages.begin(), run.percentages.end());
  data["percentages"] = percentages;
  data["crossvals"] = options.crossvals;
  const auto config = history::config_rows(runs);
  data["note"] = history::note_of_validation(runs, config);
  data["config"] = rows_of(config);
  data["environment"] = rows_of(history::environment_rows(runs));
  return with_visible_text(data);
}

history::Series shortened(const history::Series& series, size_t max_points) {
  const auto size = series.values.size();
  if (size <= max_points) return series;
  std::set<size_t> kept = {0, size - 1};
  const auto num_parts = std::max<size_t>(1, max_points / 2);
  for (size_t part = 0; part < num_parts; ++part) {
    const auto begin = part * size / num_parts;
    auto least = begin;
    auto greatest = begin;
    for (auto i = begin; i < (part + 1) * size / num_parts; ++i) {
      const auto value = series.values[i];
      if (std::isnan(series.values[least]) || value < series.values[least]) least = i;
      if (std::isnan(series.values[greatest]) || value > series.values[greatest]) greatest = i;
    }
    kept.insert({least, greatest});
  }
  history::Series result;
  for (const auto i : kept) {
    result.steps.push_back(series.steps[i]);
    result.values.push_back(series.values[i]);
  }
  return result;
}

Json make_evaluation(const history::RunRecord& run) { return run.evaluation.is_object() ? evaluation_from(run.evaluation) : Json(); }

Json make_best_evaluation(const history::RunRecord& run) {
  const auto& best = run.best_evaluation;
  if (!best.is_object() || integer_of(best, "step") == integer_of(run.evaluation, "step")) return {};
  return evaluation_from(best);
}

Json make_calibration(const history::RunRecord& run) {
  const auto& source = run.calibration;
  const auto temperature = number_of(source, "temperature");
  if (!temperature) return {};
  const auto measured = [](const Json& object) {
    auto numbers = numbers_of(object, {"value", "low", "high"});
    return numbers.size() == 3 ? numbers : Json();
  };
  const auto& bins = member_of(source, "calibration");
  const auto& error = member_of(source, "calibration_error");
  const auto part = [&](const char* when) -> Json {
    return {{"calibration", with_numbers(bins, when, {"confidence", "accuracy", "count"})}, {"error", measured(member_of(error, when))}};
  };
  Json result = {{"temperature", *temperature},
                 {"step", integer_of(source, "step").value_or(0)},
                 {"images", text_of(source, "images")},
                 {"averaged", member_of(source, "averaged") == true},
                 {"num_samples", integer_of(source, "num_samples").value_or(0)},
                 {"before", part("before")},
                 {"after", part("after")},
                 {"accuracy", measured(member_of(source, "accuracy"))},
                 {"rejected", measured(member_of(source, "rejected"))},
                 {"reject_below", number_of(source, "reject_below").value_or(0)},
                 {"classes", Json::array()}};
  if (const auto& threshold = member_of(source, "threshold"); threshold.is_object()) {
    result["threshold"] = {{"class", text_of(threshold, "class")},
                           {"probability", number_of(threshold, "probability").value_or(0)},
                           {"misses", measured(member_of(threshold, "misses"))},
                           {"false_alarms", measured(member_of(threshold, "false_alarms"))}};
  }
  for (const auto& one : list_of(source, "classes")) {
    result["classes"].push_back({{"name", text_of(one, "name")},
                                 {"num_samples", integer_of(one, "num_samples").value_or(0)},
                                 {"average_precision", number_of(one, "average_precision").value_or(0)},
                                 {"points", with_numbers(one, "precision_recall", {"threshold", "recall", "precision"})}});
  }
  return result;
}

}  // namespace trainer::report
