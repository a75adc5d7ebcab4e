#pragma once
// The cases of tests/golden/make_grad_scaler.py, repeated with the program's GradScaler and optimizers.

#include <nlohmann/json.hpp>

namespace trainer::testing {

// Trains `case_json` (an object as make_grad_scaler.py writes it) and returns it with the program's trace and parameters.
nlohmann::json run_scaler_case(const nlohmann::json& case_json);

}  // namespace trainer::testing
