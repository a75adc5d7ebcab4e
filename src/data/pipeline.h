#pragma once
// A Pipeline applies a list of transforms, which converts a stored image to the network's input.

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/picture.h"
#include "data/transforms/transform.h"
#include "trainer/keys.h"

namespace trainer::data {

// The memory layout of a batch's images.
struct BatchLayout {
  torch::ScalarType dtype = torch::kFloat32;  // float32, float64 or bfloat16
  bool channels_last = false;
};

// The most values of an image. The sizes may be from the file of a stranger.
inline constexpr int64_t kMostImageValues = int64_t{1} << 29;

// A transform that cannot be applied, or whose effect is probably unintended.
struct TransformFinding {
  std::optional<size_t> index;  // position in its list; not set if the finding concerns the whole list
  bool is_warning = false;
  std::string text;
};

// Returns the warnings about the transforms of the list, followed by the first error: a transform that cannot be applied to samples of this
// data set, or a problem of the whole list. Transforms after the error are not checked.
std::vector<TransformFinding> check_transforms(const std::vector<ComponentConfig>& components, const DatasetInfo& info);

// Immutable and thread-safe; copies share their state.
class Pipeline {
 public:
  // `components` must be from transform_registry(). Throws UsageError for lists that cannot be applied to samples of such a data set.
  Pipeline(const std::vector<ComponentConfig>& components, const DatasetInfo& info, BatchLayout layout);

  // Shape of one transformed sample.
  const std::vector<int64_t>& output_shape() const;
  const BatchLayout& layout() const;
  // Writes one transformed sample to `out`, which must have room for it in the layout's dtype. All randomness is a function of `seeds` and
  // of `which`, the sample's index in the data set and its occurrence. Throws std::runtime_error with the reason if the sample's image
  // cannot be decoded. `mask`: receives the labels of the transformed image's pixels, [height][width]; may be null.
  void write(const Sample& sample, const EpochSeeds& seeds, const EpochSample& which, PictureMemory& memory, void* out,
             uint8_t* mask = nullptr) const;

 private:
  friend std::vector<TransformFinding> check_transforms(const std::vector<ComponentConfig>& components, const DatasetInfo& info);
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace trainer::data
