#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reporting/drawing/draw.h"

namespace trainer::reporting {

// More classes would make a picture in which no class can be found.
inline constexpr size_t kMostClassesOfPicture = 50;

// The confusion matrix, [actual][predicted] row by row, of 1 to kMostClassesOfPicture classes. Each cell is the darker, the greater its
// part of its row is; with up to 12 classes it shows the count too. `class_names`: of each class; empty: they have only numbers.
drawing::RgbImage draw_confusion(const std::vector<int64_t>& confusion, const std::vector<std::string>& class_names);

}  // namespace trainer::reporting
