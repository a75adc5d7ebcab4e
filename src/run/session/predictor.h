#pragma once
// Classifies image files with a trained network.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "data/pipeline.h"
#include "run/session/network_file.h"
#include "train/engine/parts.h"

namespace trainer::session {

// How image files, of any size, become the input of a network.
struct ImageFileInput {
  data::DatasetInfo samples;  // images of any size
  std::vector<ComponentConfig> transforms;
};
// `samples`: those that the network was trained on. If these have one size, an image is resized to it before the transforms. Throws
// UsageError if they are no images of 1 or 3 channels.
ImageFileInput input_of_image_files(data::DatasetInfo samples, std::vector<ComponentConfig> transforms);

// Immutable and thread-safe.
class ImageReader {
 public:
  // As input_of_image_files(); if `samples` have one channel, an image is made grey first. Throws as it, and as data::Pipeline.
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
  ImageReader(const ImageFileInput& input, data::BatchLayout layout);

  bool is_grey_;
  data::Pipeline pipeline_;
};

struct Prediction {
  std::vector<int64_t> classes = {};       // the most probable first
  std::vector<double> probabilities = {};  // of each of them
  std::vector<float> features = {};        // what the last layer gets, if it was asked for
  std::string problem = {};                // why the file cannot be used; empty: it was
};

class Predictor {
 public:
  // Builds the network of `file` from its experiment. `averaged`: with the moving averages of its parameters. Throws UsageError if it does
  // not classify images, and CheckpointError if the weights do not fit.
  Predictor(const config::Experiment& experiment, const NetworkFile& file, bool averaged, const device::Placement& placement);

  int64_t num_classes() const { return samples_.num_classes; }
  // Of each class; empty: the classes have only numbers.
  const std::vector<std::string>& class_names() const { return samples_.class_names; }
  const data::DatasetInfo& samples() const { return samples_; }
  // Whether the network tells its features from its last layer, for add_features().
  bool has_features() const { return backbone() != nullptr; }
  // From now on predictions have features.
  void add_features() { adds_features_ = true; }
  // The `num_best` most probable classes of each file, as one batch, read by up to `num_threads` threads.
  std::vector<Prediction> predict(std::span<const std::string> files, int64_t num_best, int num_threads);

 private:
  models::BackboneModel* backbone() const { return dynamic_cast<models::BackboneModel*>(network_.model.get()); }

  data::DatasetInfo samples_;
  engine::Network network_;
  task::TestTimeAugmentation tta_;
  ImageReader reader_;
  bool adds_features_ = false;
};

}  // namespace trainer::session
