#pragma once
// Predictions of a trained network for image files.

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/pipeline.h"
#include "device/placement.h"
#include "inference/description.h"
#include "inference/operating_point.h"
#include "trainer/model.h"
#include "trainer/state.h"

namespace trainer::inference {

// How image files, of any size, become the input of a network.
struct ImageFileInput {
  data::DatasetInfo samples;  // images of any size
  std::vector<ComponentConfig> transforms;
};
// `samples`: those that the network was trained on, whose files are read as these were, in grey if they have one channel of 8 bits. If they
// have one size, an image is resized to it before the transforms. Throws UsageError if they are no images of 1 or 3 channels, nor of files
// of other depths.
ImageFileInput input_of_image_files(data::DatasetInfo samples, std::vector<ComponentConfig> transforms);

// Immutable and thread-safe.
class ImageReader {
 public:
  // As input_of_image_files(). Throws as it, and as data::Pipeline.
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
  // Write an image to `out`, which has room for one input. Throw std::runtime_error with only the reason; UsageError in a build that reads
  // no image files.
  void read_file(const std::string& path, Memory& memory, void* out) const;
  void read_encoded(std::span<const uint8_t> file, Memory& memory, void* out) const;
  const data::ImageDecoding& decoding() const { return decoding_; }
  // The pixels are memory.pixels, [height][width][3], which may be changed. Throws UsageError if the network takes other depths.
  void read_pixels(int height, int width, Memory& memory, void* out) const;

 private:
  ImageReader(const ImageFileInput& input, data::BatchLayout layout);
  void write(const data::Sample& sample, Memory& memory, void* out) const;

  data::ImageDecoding decoding_;
  data::Pipeline pipeline_;
};

struct Prediction {
  // The most probable first, but those that are decided for (inference/operating_point.h) before all others.
  std::vector<int64_t> classes = {};
  std::vector<double> probabilities = {};  // of each of them
  std::vector<int64_t> decided = {};       // all classes that are decided for, also beyond those that were asked for
  std::vector<double> numbers = {};        // if the network computes numbers
  std::vector<float> features = {};        // what the last layer gets, if it was asked for
  bool is_rejected = false;
  std::string problem = {};  // why the file cannot be used; empty: it was
};

// What a network computes for a batch of images.
struct Outputs {
  torch::Tensor answers;   // probabilities or numbers, float64 [images, outputs] on the CPU
  torch::Tensor features;  // float32 [images, features] on the CPU; undefined if they were not asked for
};

class Predictor {
 public:
  // Builds the network and loads its weights from the tree of its file. `averaged`: the moving averages of its parameters.
  // Throws UsageError if its answers are not classes or numbers of images, and CheckpointError if the weights do not fit.
  Predictor(const Description& description, const state::Tree& file, bool averaged, const device::Placement& placement);

  int64_t num_outputs() const { return samples_.num_outputs(); }
  // Of each class, or of each number; empty: they have no names.
  const std::vector<std::string>& output_names() const { return samples_.output_names(); }
  const data::DatasetInfo& samples() const { return samples_; }
  const ImageReader& reader() const { return reader_; }
  // That of the file. Probabilities are those with its temperature.
  const OperatingPoint& operating_point() const { return point_; }
  void set_reject_below(double probability) { point_.reject_below = probability; }
  // Whether the network separates its features, the input of the last layer, from that layer.
  bool has_features() const { return backbone() != nullptr; }

  // An empty batch of inputs in the memory format of reader(), on the CPU.
  torch::Tensor make_batch(int64_t num_images) const;
  // Of such a batch. Where runtime.convolution is auto, a batch of less than eight images is convolved directly. Throws std::logic_error if
  // features are asked for that the network does not have.
  Outputs compute(const torch::Tensor& images, bool with_features);
  // The `num_best` most probable classes of each file, or its numbers, as one batch, read by up to `num_threads` threads.
  std::vector<Prediction> predict(std::span<const std::string> files, int64_t num_best, int num_threads, bool with_features);

 private:
  void sort_classes(std::span<const double> probabilities, int64_t num_best, Prediction& prediction) const;
  models::BackboneModel* backbone() const { return dynamic_cast<models::BackboneModel*>(model_.get()); }

  data::DatasetInfo samples_;
  std::shared_ptr<models::Model> model_;
  device::Placement placement_;
  task::TestTimeAugmentation tta_;
  OperatingPoint point_;
  ImageReader reader_;
  bool chooses_convolution_;  // by the size of each batch
  bool uses_winograd_ = false;
};

}  // namespace trainer::inference
