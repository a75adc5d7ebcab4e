#pragma once

#include <functional>
#include <optional>

#include "engine/parts.h"
#include "metrics/classification.h"

namespace trainer::engine {

// Scores of the model, in eval mode, over every sample of the validation set once. Under autocast where training is. Asks
// `should_stop` before each batch; a stopped evaluation has no result. Leaves the model in train mode.
std::optional<metrics::Scores> evaluate(Parts& parts, const std::function<bool()>& should_stop);

}  // namespace trainer::engine
