#include "commands/operating_point.h"

#include <fmt/format.h>

#include "base/text.h"
#include "reporting/evaluation.h"

namespace trainer::commands {

reporting::Json to_json(const session::Measured& measured) {
  return {{"value", measured.value}, {"low", measured.low}, {"high", measured.high}};
}

std::string percent(const session::Measured& measured) {
  return fmt::format("{:.2f}% ({:.2f}% to {:.2f}%)", 100 * measured.value, 100 * measured.low, 100 * measured.high);
}

reporting::Json to_json(const std::optional<session::Measured>& measured) { return measured ? to_json(*measured) : reporting::Json(); }

reporting::Json to_json(const inference::OperatingPoint& point, const session::DecisionResult& decisions,
                        const std::vector<std::string>& class_names) {
  reporting::Json json = {{"temperature", point.temperature},
                          {"reject_below", point.reject_below},
                          {"accuracy", to_json(decisions.accuracy)},
                          {"rejected", to_json(decisions.rejected)}};
  if (const auto& threshold = point.threshold) {
    json["threshold"] = {{"class", reporting::name_of_class(class_names, threshold->label)},
                         {"label", threshold->label},
                         {"probability", threshold->probability},
                         {"misses", to_json(decisions.misses)},
                         {"false_alarms", to_json(decisions.false_alarms)}};
  }
  return json;
}

std::string decisions_text(const inference::OperatingPoint& point, const session::DecisionResult& decisions,
                           const std::vector<std::string>& class_names) {
  const auto part = [](const std::optional<session::Measured>& measured, const char* words, const char* words_of_none) {
    return measured ? percent(*measured) + words : words_of_none;
  };
  std::string text;
  if (const auto& threshold = point.threshold) {
    text += fmt::format("class              {}: assigned if its probability is at least {:.6g}; {}, {}\n",
                        printable_line(reporting::name_of_class(class_names, threshold->label)), threshold->probability,
                        part(decisions.misses, " of its images are missed", "no image belongs to it"),
                        part(decisions.false_alarms, " of the others are falsely assigned to it", "no image belongs to another class"));
  }
  if (point.reject_below > 0) {
    text += fmt::format("rejected           {} {}\n",
                        part(decisions.rejected, " have a probability below", "no images have a probability below"), point.reject_below);
  }
  text += fmt::format("accuracy           {}\n",
                      part(decisions.accuracy, point.reject_below > 0 ? " of the others" : "", "unknown, because all images are rejected"));
  return text;
}

}  // namespace trainer::commands
