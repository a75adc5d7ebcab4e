#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reporting/drawing/draw.h"

namespace trainer::reporting {

// With more classes, the picture would be too large to find a class in it.
inline constexpr size_t kMostClassesOfPicture = 50;

// Draws the confusion matrix, [actual][predicted] row by row, of 1 to kMostClassesOfPicture classes. A darker cell stands for a greater
// share of its row; with up to 12 classes the count is shown too. `class_names`: the name of each class; empty: the classes have no names.
drawing::RgbImage draw_confusion(const std::vector<int64_t>& confusion, const std::vector<std::string>& class_names);

}  // namespace trainer::reporting
