#pragma once
// Finds pictures that are nearly the same: copies that were saved again, resized, made a little brighter or cropped a little.

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/picture.h"
#include "trainer/dataset.h"

namespace trainer::data {

// The grey values of a picture in a small size, whatever its own size.
inline constexpr int kThumbnailSide = 32;
using Thumbnail = std::array<uint8_t, kThumbnailSide * kThumbnailSide>;
// Throws as Picture::resize().
Thumbnail make_thumbnail(const ImageView& image, PictureMemory& memory);

struct ComparedPicture {
  const Thumbnail* thumbnail = nullptr;
  uint8_t part = 0;  // of the data set
};

// Two pictures, by their positions; first < second.
struct NearDuplicates {
  uint32_t first = 0;
  uint32_t second = 0;
  float similarity = 0;  // at most 1
};

// The pairs that are nearly the same, in ascending order. Pictures without any structure are not compared. The time does not grow with the
// square of the number of pictures: each is compared only with the 8 of its part, and the 8 of other parts, that are most like it by a
// hash of 64 bits. The pictures are compared less what all pictures of their kind have in common, so that pictures of the same thing from
// the same place differ. `may_continue` is called by this thread a few times a second; when it returns false, the rest is left out.
std::vector<NearDuplicates> find_near_duplicates(std::span<const ComparedPicture> pictures, int num_threads,
                                                 const std::function<bool()>& may_continue);

}  // namespace trainer::data
