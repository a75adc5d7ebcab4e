#include "commands/evaluation_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "cli/output.h"

namespace trainer::commands {
namespace {

constexpr size_t kMostClassesOfMatrix = 20;

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, cli::text_width(text)), ' ');
}

std::string rounded(const reporting::Metric& metric) {
  return metric.info.format == reporting::MetricFormat::kPercent ? fmt::format("{:.2f}%", 100 * metric.value)
                                                                 : fmt::format("{:.4f}", metric.value);
}

std::string heading(const reporting::Evaluation& evaluation, const reporting::Fields& of_what, std::optional<size_t> width) {
  reporting::Fields fields = {{evaluation.split}};
  for (const auto& metric : evaluation.event.metrics) fields.push_back({metric.info.name + " " + rounded(metric)});
  const auto line = [&](const reporting::Fields& parts) {
    return (width ? reporting::wrapped(parts, *width) : reporting::to_line(parts)) + '\n';
  };
  return line(of_what) + line(fields);
}

std::string table_of_classes(const std::vector<std::string>& names, const std::vector<reporting::ClassScores>& scores, size_t name_width) {
  auto text = fmt::format("\n{}  {:>8}  {:>9}  {:>9}  {:>9}\n", padded("class", name_width), "samples", "recall", "precision", "f1");
  const auto percent = [](double part) { return fmt::format("{:.2f}%", 100 * part); };
  for (size_t i = 0; i < names.size(); ++i) {
    text += fmt::format("{}  {:>8}  {:>9}  {:>9}  {:>9}\n", padded(names[i], name_width), scores[i].num_samples, percent(scores[i].recall),
                        percent(scores[i].precision), percent(scores[i].f1));
  }
  return text;
}

std::string confusion_matrix(const std::vector<std::string>& names, const std::vector<int64_t>& confusion, size_t name_width,
                             std::optional<size_t> width) {
  const size_t cell = 2 + std::to_string(std::ranges::max(confusion)).size();
  if (names.size() > kMostClassesOfMatrix || (width && name_width + names.size() * cell > *width)) {
    return fmt::format("\nconfusion matrix of {} classes: not shown; --json has it\n", names.size());
  }
  std::string text = "\nconfusion matrix (rows: actual, columns: predicted)\n";
  for (size_t i = 0; i < names.size(); ++i) {
    text += padded(names[i], name_width);
    for (size_t j = 0; j < names.size(); ++j) text += fmt::format("{:>{}}", confusion[i * names.size() + j], cell);
    text += '\n';
  }
  return text;
}

}  // namespace

std::string evaluation_text(const reporting::Evaluation& evaluation, const reporting::Fields& of_what, std::optional<size_t> width) {
  auto text = heading(evaluation, of_what, width);
  const auto& confusion = evaluation.event.classes.confusion;
  if (confusion.empty()) return text;
  const auto scores = reporting::scores_of_classes(confusion);
  std::vector<std::string> names;
  size_t name_width = 5;
  for (size_t i = 0; i < scores.size(); ++i) {
    names.push_back(printable_line(reporting::name_of_class(evaluation.class_names, static_cast<int64_t>(i))));
    name_width = std::max(name_width, cli::text_width(names.back()));
  }
  return text + table_of_classes(names, scores, name_width) + confusion_matrix(names, confusion, name_width, width);
}

}  // namespace trainer::commands
