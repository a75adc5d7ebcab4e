#include "reporting/evaluation.h"

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "reporting/sinks.h"
#include "reporting/values.h"
#include "trainer/error.h"

namespace trainer::reporting {
namespace {

// With more classes, the matrix would take up most of the file, which each validation writes again.
constexpr size_t kMostClassesOfFile = 200;

double fraction(int64_t part, int64_t whole) { return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole); }

// `width`: the number of values in a row.
template <class T>
Json rows_of(const std::vector<T>& values, size_t width) {
  auto rows = Json::array();
  for (auto row = values.begin(); row != values.end(); row += static_cast<std::ptrdiff_t>(width)) {
    rows.push_back(std::vector<T>(row, row + static_cast<std::ptrdiff_t>(width)));
  }
  return rows;
}

void add_label_results(Json& object, const Evaluation& evaluation, bool with_matrix) {
  const auto& results = evaluation.event.labels;
  auto classes = Json::array();
  for (const auto& one : results.classes) {
    classes.push_back({{"name", name_of_class(evaluation.output_names, static_cast<int64_t>(classes.size()))},
                       {"num_samples", one.num_samples},
                       {"average_precision", one.average_precision},
                       {"recall", one.recall},
                       {"precision", one.precision},
                       {"f1", one.f1},
                       {"threshold", one.threshold}});
  }
  object["classes"] = std::move(classes);
  if (with_matrix) object["co_occurrence"] = rows_of(results.co_occurrence, results.classes.size());
}

void add_number_results(Json& object, const Evaluation& evaluation) {
  const auto& results = evaluation.event.numbers;
  auto numbers = Json::array();
  for (const auto& one : results.numbers) {
    numbers.push_back({{"name", name_of_class(evaluation.output_names, static_cast<int64_t>(numbers.size()))},
                       {"mae", one.mae},
                       {"rmse", one.rmse},
                       {"r2", one.r2}});
  }
  object["targets"] = rows_of(results.targets, results.numbers.size());
  object["predictions"] = rows_of(results.predictions, results.numbers.size());
  object["numbers"] = std::move(numbers);
}

void add_class_results(Json& object, const Evaluation& evaluation, bool with_confusion) {
  const auto& results = evaluation.event.classes;
  auto classes = Json::array();
  for (const auto& scores : scores_of_classes(results.confusion)) {
    classes.push_back({{"name", name_of_class(evaluation.output_names, static_cast<int64_t>(classes.size()))},
                       {"num_samples", scores.num_samples},
                       {"recall", scores.recall},
                       {"precision", scores.precision},
                       {"f1", scores.f1}});
  }
  const size_t num_classes = classes.size();
  object["classes"] = std::move(classes);
  if (with_confusion) object["confusion"] = rows_of(results.confusion, num_classes);
  object["calibration"] = to_json(results.calibration);
  auto mistakes = Json::array();
  for (const auto& mistake : results.mistakes) {
    mistakes.push_back(
        {{"index", mistake.index}, {"label", mistake.label}, {"predicted", mistake.predicted}, {"confidence", mistake.confidence}});
  }
  object["mistakes"] = std::move(mistakes);
}

class EvaluationFile : public Sink {
 public:
  EvaluationFile(std::filesystem::path file, Validations which, std::vector<std::string> output_names, Logger& logger)
      : file_(std::move(file)), which_(which), output_names_(std::move(output_names)), logger_(logger) {}

  void on_validation(const ValidationEvent& event) override {
    const auto num_classes = std::max(num_classes_of(event.classes.confusion), event.labels.classes.size());
    if ((num_classes == 0 && event.numbers.numbers.empty()) || (which_ == Validations::kBest && !event.is_best)) return;
    const bool with_confusion = num_classes <= kMostClassesOfFile;
    try {
      write_file_atomically(file_, to_text(to_json(Evaluation{.event = event, .output_names = output_names_}, with_confusion)) + '\n');
    } catch (const Error& error) {
      logger_.warn("{}; training continues; `trainer eval` with a checkpoint gives the same results", error.what());
    }
  }

 private:
  std::filesystem::path file_;
  Validations which_;
  std::vector<std::string> output_names_;
  Logger& logger_;
};

}  // namespace

size_t num_classes_of(const std::vector<int64_t>& confusion) {
  return static_cast<size_t>(std::lround(std::sqrt(static_cast<double>(confusion.size()))));
}

std::vector<ClassScores> scores_of_classes(const std::vector<int64_t>& confusion) {
  const size_t num_classes = num_classes_of(confusion);
  std::vector<int64_t> predicted(num_classes, 0);
  std::vector<ClassScores> classes(num_classes);
  for (size_t i = 0; i < confusion.size(); ++i) {
    classes[i / num_classes].num_samples += confusion[i];
    predicted[i % num_classes] += confusion[i];
  }
  for (size_t label = 0; label < num_classes; ++label) {
    auto& scores = classes[label];
    const int64_t hits = confusion[label * num_classes + label];
    scores.recall = fraction(hits, scores.num_samples);
    scores.precision = fraction(hits, predicted[label]);
    scores.f1 = fraction(2 * hits, scores.num_samples + predicted[label]);
  }
  return classes;
}

std::string name_of_class(const std::vector<std::string>& class_names, int64_t label) {
  const auto index = static_cast<size_t>(label);
  return index < class_names.size() ? class_names[index] : std::to_string(label);
}

Json to_json(const std::vector<CalibrationBin>& bins) {
  auto json = Json::array();
  for (const auto& bin : bins) json.push_back({{"confidence", bin.confidence}, {"accuracy", bin.accuracy}, {"count", bin.count}});
  return json;
}

Json to_json(const Evaluation& evaluation, bool with_confusion) {
  const auto& event = evaluation.event;
  Json object = {{"split", evaluation.split},
                 {"epoch", event.epoch},
                 {"step", event.step},
                 {"num_samples", event.num_samples},
                 {"metrics", Json::object()}};
  add_metrics(object["metrics"], event.metrics);
  if (!event.ema_metrics.empty()) add_metrics(object["ema_metrics"], event.ema_metrics);
  if (!event.classes.confusion.empty()) add_class_results(object, evaluation, with_confusion);
  if (!event.labels.classes.empty()) add_label_results(object, evaluation, with_confusion);
  if (!event.numbers.numbers.empty()) add_number_results(object, evaluation);
  return object;
}

std::unique_ptr<Sink> make_evaluation(const std::filesystem::path& file, Validations which, std::vector<std::string> output_names,
                                      Logger& logger) {
  return std::make_unique<EvaluationFile>(file, which, std::move(output_names), logger);
}

}  // namespace trainer::reporting
