#pragma once
// The cases of tests/golden/make_losses.py, repeated with the program's train step.

#include <nlohmann/json.hpp>

namespace trainer::testing {

// Trains `case_json` (an object as make_losses.py writes it) and returns it with the program's losses, sum and sum_of_squares.
// Like make_losses.py it uses one thread for each rank and no autocast. Tensors are channels_last if the case has a `convolution`, else
// contiguous.
nlohmann::json run_loss_case(const nlohmann::json& case_json);

}  // namespace trainer::testing
