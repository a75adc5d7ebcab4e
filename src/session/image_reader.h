#pragma once
// Image files as the input of a network.

#include <cstdint>
#include <string>
#include <vector>

#include "data/pipeline.h"

namespace trainer::session {

// Immutable and thread-safe.
class ImageReader {
 public:
  // `samples`: those that the network was trained on. If these have one size, an image is resized to it before the transforms; if they have
  // one channel, it is made grey. Throws UsageError if they are no images of 1 or 3 channels, and as data::Pipeline.
  ImageReader(const data::DatasetInfo& samples, std::vector<ComponentConfig> transforms, data::BatchLayout layout);

  // Of one input.
  const std::vector<int64_t>& shape() const { return pipeline_.output_shape(); }
  const data::BatchLayout& layout() const { return pipeline_.layout(); }

  // What a thread reuses from image to image.
  struct Memory {
    std::vector<uint8_t> file;
    std::vector<uint8_t> pixels;
    data::PictureMemory picture;
  };
  // Writes an image to `out`, which has room for one input. Throws std::runtime_error with only the reason; UsageError in a build that
  // reads no image files.
  void read(const std::string& path, Memory& memory, void* out) const;

 private:
  bool is_grey_;
  data::Pipeline pipeline_;
};

}  // namespace trainer::session
