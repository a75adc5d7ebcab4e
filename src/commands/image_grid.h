#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "drawing/rgb_image.h"
#include "trainer/keys.h"

namespace trainer::commands {

// One picture of `count` images of that shape, [channels, height, width], with their captions, in rows and columns. Small images are
// enlarged. `read` writes image number i, [height][width][channels] with values from 0 to 1, and returns its caption in ASCII.
drawing::RgbImage draw_image_grid(const std::vector<int64_t>& shape, int64_t count,
                                  const std::function<std::string(int64_t i, float* out)>& read);

// The name of a class as captions have it: without accents, or its number where it has letters that cannot be drawn.
std::string drawable_class_name(const std::vector<std::string>& class_names, int64_t label);

// The transforms without `normalize`, whose values are not colours.
std::vector<ComponentConfig> without_normalize(std::vector<ComponentConfig> transforms);

}  // namespace trainer::commands
