#pragma once
// The output of `trainer eval`, in parts also that of `trainer crossval` and `trainer calibrate`.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "inference/operating_point.h"
#include "reporting/values.h"
#include "run/evaluation/decisions.h"

namespace trainer::commands {

// For people: a confusion matrix, row by row, which is omitted if it has many classes or does not fit into `width` columns. `of_what`: such
// as " of all folds", or empty.
std::string confusion_text(const std::string& of_what, const std::vector<std::string>& names, const std::vector<int64_t>& confusion,
                           std::optional<size_t> width);

// About an operating point, also for `trainer calibrate`.

reporting::Json to_json(const evaluation::Measured& measured);
// "1.20% (0.80% to 1.90%)", with the 95 % interval.
std::string percent(const evaluation::Measured& measured);

// An object with temperature, reject_below, accuracy, rejected and, if there is one, threshold. Unknown values are null.
reporting::Json to_json(const inference::OperatingPoint& point, const evaluation::DecisionResult& decisions,
                        const std::vector<std::string>& class_names);
// Lines that describe the decisions; each begins with a title, padded to 19 characters.
std::string decisions_text(const inference::OperatingPoint& point, const evaluation::DecisionResult& decisions,
                           const std::vector<std::string>& class_names);

}  // namespace trainer::commands
