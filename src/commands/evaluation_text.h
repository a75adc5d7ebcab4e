#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "reporting/evaluation.h"

namespace trainer::commands {

// For readers: the metrics, a table of the classes and the confusion matrix, which is left out if it has many classes or does not fit into
// `width` columns. `of_what`: the network and its file.
std::string evaluation_text(const reporting::Evaluation& evaluation, const std::string& of_what, std::optional<size_t> width);

}  // namespace trainer::commands
