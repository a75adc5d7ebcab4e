#pragma once
// The cases of tests/golden/make_losses.py, repeated by the program's own train step.

#include <nlohmann/json.hpp>
#include <string>

namespace trainer::testing {

// Trains `case_json` (an object as make_losses.py writes it) and returns it with losses, sum and sum_of_squares of its own.
// One thread for each rank, contiguous tensors, no autocast, as make_losses.py does.
nlohmann::json run_loss_case(const nlohmann::json& case_json);

// The kind of this CPU as tests/golden/cpu.py spells it.
std::string cpu_kind();

}  // namespace trainer::testing
