#pragma once
// The output of `trainer calibrate` and `trainer eval` about an operating point.

#include <cstdint>
#include <string>
#include <vector>

#include "inference/operating_point.h"
#include "reporting/values.h"
#include "run/evaluation/decisions.h"

namespace trainer::commands {

reporting::Json to_json(const session::Measured& measured);
// "1.20% (0.80% to 1.90%)", with the 95 % interval.
std::string percent(const session::Measured& measured);

// An object with temperature, reject_below, accuracy, rejected and, if there is one, threshold. Unknown values are null.
reporting::Json to_json(const inference::OperatingPoint& point, const session::DecisionResult& decisions,
                        const std::vector<std::string>& class_names);
// Lines that describe the decisions; each begins with a title, padded to 19 characters.
std::string decisions_text(const inference::OperatingPoint& point, const session::DecisionResult& decisions,
                           const std::vector<std::string>& class_names);

}  // namespace trainer::commands
