#include "report/evaluation.h"

#include <algorithm>
#include <string>
#include <vector>

#include "report/history/metrics_file.h"

namespace trainer::report {
namespace {

using history::integer_of;
using history::Json;
using history::member_of;
using history::number_of;
using history::text_of;

constexpr size_t kMostPairs = 20;
constexpr size_t kMostMistakes = 64;

using Matrix = std::vector<std::vector<int64_t>>;

// Empty if it is not a square of counts.
Matrix read_matrix(const Json& rows) {
  Matrix matrix;
  if (!rows.is_array()) return matrix;
  for (const auto& row : rows) {
    if (!row.is_array() || row.size() != rows.size() || !std::ranges::all_of(row, &Json::is_number_integer)) return {};
    matrix.push_back(row.get<std::vector<int64_t>>());
  }
  return matrix;
}

Json share(int64_t part, int64_t whole) { return whole > 0 ? Json(static_cast<double>(part) / static_cast<double>(whole)) : Json(); }

int64_t sum_of_row(const std::vector<int64_t>& row) {
  int64_t sum = 0;
  for (const auto count : row) sum += count;
  return sum;
}

std::string name_of(const history::RunRecord& run, size_t label) {
  return label < run.class_names.size() ? run.class_names[label] : std::to_string(label);
}

Json classes_of(const history::RunRecord& run, const Matrix& matrix) {
  auto classes = Json::array();
  for (size_t label = 0; label < matrix.size(); ++label) {
    const auto num_samples = sum_of_row(matrix[label]);
    int64_t num_predicted = 0;
    for (const auto& row : matrix) num_predicted += row[label];
    const auto right = matrix[label][label];
    classes.push_back({{"name", name_of(run, label)},
                       {"num_samples", num_samples},
                       {"recall", share(right, num_samples)},
                       {"precision", share(right, num_predicted)},
                       {"f1", share(2 * right, num_samples + num_predicted)}});
  }
  return classes;
}

Json known_classes(const Json& given) {
  auto classes = Json::array();
  for (const auto& one : given) {
    const auto optional = [&](const char* name) {
      const auto value = number_of(one, name);
      return value ? Json(*value) : Json();
    };
    classes.push_back({{"name", text_of(one, "name")},
                       {"num_samples", integer_of(one, "num_samples").value_or(0)},
                       {"recall", optional("recall")},
                       {"precision", optional("precision")},
                       {"f1", optional("f1")}});
    if (text_of(one, "name").empty()) classes.back()["name"] = std::to_string(classes.size() - 1);
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
    result.push_back({{"actual", actual}, {"predicted", predicted}, {"count", count}, {"share", share(count, sum_of_row(matrix[actual]))}});
  }
  return result;
}

// The elements of the array that have all of these numbers, with nothing else.
Json with_numbers(const Json& elements, const std::vector<const char*>& names, size_t most) {
  auto result = Json::array();
  if (!elements.is_array()) return result;
  for (const auto& element : elements) {
    if (result.size() == most) break;
    Json numbers;
    for (const auto* name : names) {
      if (const auto& value = member_of(element, name); value.is_number()) numbers[name] = value;
    }
    if (numbers.size() == names.size()) result.push_back(std::move(numbers));
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

// `source`: an object with the results of the classes; null if it has none. `metrics`: the object with its metrics.
Json evaluation_from(const history::RunRecord& run, const Json& source, const Json& metrics) {
  const auto matrix = read_matrix(member_of(source, "confusion"));
  const auto& given = member_of(source, "classes");
  const auto split = text_of(source, "split");
  Json result = {{"split", split.empty() ? "validation" : split},
                 {"step", integer_of(source, "step").value_or(0)},
                 {"num_samples", integer_of(source, "num_samples").value_or(0)},
                 {"metrics", metrics_of(metrics)},
                 {"classes", given.is_array() ? known_classes(given) : classes_of(run, matrix)},
                 {"pairs", pairs_of(matrix)},
                 {"calibration", with_numbers(member_of(source, "calibration"), {"confidence", "accuracy", "count"}, 100)},
                 {"mistakes", with_numbers(member_of(source, "mistakes"), {"index", "label", "predicted", "confidence"}, kMostMistakes)}};
  if (!matrix.empty() && matrix.size() <= kMostMatrixClasses) result["confusion"] = matrix;
  return result;
}

}  // namespace

Json make_evaluation(const history::RunRecord& run) {
  if (run.evaluation.is_object()) return evaluation_from(run, run.evaluation, member_of(run.evaluation, "metrics"));
  const auto& source = member_of(run.summary, "final");
  return read_matrix(member_of(source, "confusion")).empty() ? Json() : evaluation_from(run, source, source);
}

Json make_best_evaluation(const history::RunRecord& run) {
  const auto& best = run.best_evaluation;
  if (!best.is_object() || integer_of(best, "step") == integer_of(run.evaluation, "step")) return {};
  return evaluation_from(run, best, member_of(best, "metrics"));
}

}  // namespace trainer::report
