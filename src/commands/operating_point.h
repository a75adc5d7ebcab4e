#pragma once
// What `trainer calibrate` and `trainer eval` print of an operating point.

#include <cstdint>
#include <string>
#include <vector>

#include "inference/operating_point.h"
#include "reporting/values.h"
#include "run/session/decisions.h"

namespace trainer::commands {

reporting::Json to_json(const session::Measured& measured);
// "1.20% (0.80% to 1.90%)", with the 95 % interval.
std::string percent(const session::Measured& measured);

// temperature, reject_below, accuracy and rejected, and if there is one the threshold. What is not known is null.
reporting::Json to_json(const inference::OperatingPoint& point, const session::DecisionResult& decisions,
                        const std::vector<std::string>& class_names);
// The lines of what is decided, with titles of 19 characters.
std::string decisions_text(const inference::OperatingPoint& point, const session::DecisionResult& decisions,
                           const std::vector<std::string>& class_names);

}  // namespace trainer::commands
