#pragma once
// Finds images that are nearly the same: copies that were saved again, resized, slightly brightened or slightly cropped.

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/picture.h"
#include "trainer/dataset.h"

namespace trainer::data {

// The grey values of an image, resized to a fixed small size.
inline constexpr int kThumbnailSide = 32;
using Thumbnail = std::array<uint8_t, kThumbnailSide * kThumbnailSide>;
// `memory` is reused between calls.
Thumbnail make_thumbnail(const ImageView& image, PictureMemory& memory);

struct ComparedPicture {
  const Thumbnail* thumbnail = nullptr;
  uint8_t part = 0;  // number of the part of the data set (such as training) that contains the image
};

// Two images, by their positions in `pictures`; first < second.
struct NearDuplicates {
  uint32_t first = 0;
  uint32_t second = 0;
  float similarity = 0;  // at most 1
};

// Returns the pairs that are nearly the same, in ascending order. Images without structure (nearly a single colour) are not compared. Each
// image is compared only with the 8 images of its part of the data set and the 8 images of other parts whose hashes of 64 bits are most
// similar to its own. The comparison allows for cropped edges, and removes the structure that images of the same kind have in common. The
// calling thread calls `may_continue` many times a second; if it returns false, the remaining comparisons are skipped.
std::vector<NearDuplicates> find_near_duplicates(std::span<const ComparedPicture> pictures, int num_threads,
                                                 const std::function<bool()>& may_continue);

}  // namespace trainer::data
