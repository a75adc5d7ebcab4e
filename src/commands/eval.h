#pragma once
// The output of `trainer eval`.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "reporting/evaluation.h"
#include "reporting/values.h"

namespace trainer::commands {

// For people: the metrics, a table of the classes and the confusion matrix, which is omitted if it has many classes or does not fit into
// `width` columns. `of_what`: the images, the network and its file.
std::string evaluation_text(const reporting::Evaluation& evaluation, const reporting::Fields& of_what, std::optional<size_t> width);

// The same of a confusion matrix, row by row. `of_what`: such as " of all folds", or empty.
std::string confusion_text(const std::string& of_what, const std::vector<std::string>& names, const std::vector<int64_t>& confusion,
                           std::optional<size_t> width);

}  // namespace trainer::commands
