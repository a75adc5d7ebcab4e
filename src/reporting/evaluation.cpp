#include "reporting/evaluation.h"

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "reporting/sinks.h"
#include "reporting/values.h"
#include "trainer/error.h"

namespace trainer::reporting {
namespace {

// The matrix of more classes would be most of the file, which each validation writes again.
constexpr size_t kMostClassesOfFile = 200;

double fraction(int64_t part, int64_t whole) { return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole); }

Json metrics_object(const Metrics& metrics) {
  auto object = Json::object();
  add_metrics(object, metrics);
  return object;
}

void add_class_results(Json& object, const Evaluation& evaluation, bool with_confusion) {
  const auto& results = evaluation.event.classes;
  auto classes = Json::array();
  for (const auto& scores : scores_of_classes(results.confusion)) {
    classes.push_back({{"name", name_of_class(evaluation.class_names, static_cast<int64_t>(classes.size()))},
                       {"num_samples", scores.num_samples},
                       {"recall", scores.recall},
                       {"precision", scores.precision},
                       {"f1", scores.f1}});
  }
  const size_t num_classes = classes.size();
  object["classes"] = std::move(classes);
  if (with_confusion) {
    auto rows = Json::array();
    for (auto row = results.confusion.begin(); row != results.confusion.end();) {
      const auto end = row + static_cast<std::ptrdiff_t>(num_classes);
      rows.push_back(std::vector<int64_t>(row, end));
      row = end;
    }
    object["confusion"] = std::move(rows);
  }
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
  EvaluationFile(std::filesystem::path file, Validations which, std::vector<std::string> class_names, Logger& logger)
      : file_(std::move(file)), which_(which), class_names_(std::move(class_names)), logger_(logger) {}

  void on_validation(const ValidationEvent& event) override {
    if (event.classes.confusion.empty() || (which_ == Validations::kBest && !event.is_best)) return;
    const bool with_confusion = num_classes_of(event.classes.confusion) <= kMostClassesOfFile;
    try {
      write_file_atomically(file_, to_json_text({.event = event, .class_names = class_names_}, with_confusion) + '\n');
    } catch (const Error& error) {
      logger_.warn("{}; training continues, and `trainer eval` with a checkpoint gives the same results", error.what());
    }
  }

 private:
  std::filesystem::path file_;
  Validations which_;
  std::vector<std::string> class_names_;
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
                 {"metrics", metrics_object(event.metrics)}};
  if (!event.ema_metrics.empty()) object["ema_metrics"] = metrics_object(event.ema_metrics);
  if (!event.classes.confusion.empty()) add_class_results(object, evaluation, with_confusion);
  return object;
}

std::string to_json_text(const Evaluation& evaluation, bool with_confusion) { return to_text(to_json(evaluation, with_confusion)); }

std::unique_ptr<Sink> make_evaluation(const std::filesystem::path& file, Validations which, std::vector<std::string> class_names,
                                      Logger& logger) {
  return std::make_unique<EvaluationFile>(file, which, std::move(class_names), logger);
}

}  // namespace trainer::reporting
