#pragma once
// Predictions of a trained network for image files.

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
#include "trainer/torch.h"

namespace trainer::inference {

// The conversion of image files of any size to the input of a network.
struct ImageFileInput {
  data::DatasetInfo samples;  // images of any size
  std::vector<ComponentConfig> transforms;
};
// Whether image files can be converted to the input of a network that was trained on these samples.
bool takes_image_files(const data::DatasetInfo& samples);
// `samples`: the samples on which the network was trained. Files are decoded like the files of these samples, in grey if the samples have
// one 8-bit channel. If the samples have a fixed size, images are resized to that size before the transforms. Throws UsageError unless
// takes_image_files().
ImageFileInput input_of_image_files(data::DatasetInfo samples, std::vector<ComponentConfig> transforms);

// Converts images to the input of a network. Immutable and thread-safe.
class ImageReader {
 public:
  // The first two arguments are those of input_of_image_files(). Throws like that function and like data::Pipeline.
  ImageReader(const data::DatasetInfo& samples, std::vector<ComponentConfig> transforms, data::BatchLayout layout);

  // The shape of one input.
  const std::vector<int64_t>& shape() const { return pipeline_.output_shape(); }
  const data::BatchLayout& layout() const { return pipeline_.layout(); }

  // Memory that a thread reuses for each image.
  struct Memory {
    std::vector<uint8_t> file;
    std::vector<uint8_t> pixels;
    data::PictureMemory picture;
  };
  // read_file() and read_encoded() write the image to `out`, which must have room for one input. They throw std::runtime_error with the
  // reason but not the path, or UsageError in a build without support for image files.
  void read_file(const std::string& path, Memory& memory, void* out) const;
  void read_encoded(std::span<const uint8_t> file, Memory& memory, void* out) const;
  const data::ImageDecoding& decoding() const { return decoding_; }
  // Writes the image in memory.pixels, [height][width][3], to `out`, and may change memory.pixels. Throws UsageError if the network does
  // not use 8-bit pixels.
  void read_pixels(int height, int width, Memory& memory, void* out) const;

 private:
  ImageReader(const ImageFileInput& input, data::BatchLayout layout);
  void write(const data::Sample& sample, Memory& memory, void* out) const;

  data::ImageDecoding decoding_;
  data::Pipeline pipeline_;
};

struct Prediction {
  // First the decided classes, which decide() or the thresholds (inference/operating_point.h) select, then the others; both in descending
  // order of probability.
  std::vector<int64_t> classes = {};
  std::vector<double> probabilities = {};  // of each of these classes
  std::vector<int64_t> decided = {};       // all decided classes, which may be more than `num_best`
  std::vector<double> numbers = {};        // set if the network computes numbers
  std::vector<float> features = {};        // input of the last layer, if requested
  std::vector<float> heatmap = {};         // [height][width] of the input, if requested
  bool is_rejected = false;
  std::string problem = {};  // why there are no results for the file; empty if there are
};

// What a prediction contains if it is requested.
struct Extras {
  bool features = false;
  bool heatmap = false;
};

// The results of a network for a batch of images.
struct Outputs {
  torch::Tensor answers;   // probabilities or numbers, float64 [images, outputs] on the CPU
  torch::Tensor features;  // float32 [images, features] on the CPU; undefined if not requested
};

class Predictor {
 public:
  // Builds the network and loads its weights from `file`, the content of its checkpoint. `averaged`: loads the moving averages of its
  // parameters. Throws UsageError if the network does not compute classes or numbers for images, or does not accept the transformed
  // images, and CheckpointError if the weights do not fit.
  Predictor(const Description& description, const state::Tree& file, bool averaged, const device::Placement& placement);

  int64_t num_outputs() const { return samples_.num_outputs(); }
  // The names of the classes or numbers; empty if they have none.
  const std::vector<std::string>& output_names() const { return samples_.output_names(); }
  const data::DatasetInfo& samples() const { return samples_; }
  const ImageReader& reader() const { return reader_; }
  // The operating point in the file. Its temperature is already applied to the probabilities of compute() and predict().
  const OperatingPoint& operating_point() const { return point_; }
  void set_reject_below(double probability) { point_.reject_below = probability; }
  // Whether the network provides its features, the input of the last layer.
  bool has_features() const { return backbone() != nullptr; }
  // Whether heatmaps() can show which parts of an image decide.
  bool has_maps() const { return dynamic_cast<const models::FeatureMapModel*>(model_.get()) != nullptr; }

  // Returns a batch of inputs that are all 0, in the memory format of reader(), on the CPU.
  torch::Tensor make_batch(int64_t num_images) const;
  // Computes the outputs of a batch from make_batch(). Throws std::logic_error if features are requested that the network does not provide,
  // and UsageError if the outputs have another shape than expected.
  Outputs compute(const torch::Tensor& images, bool with_features);
  // Grad-CAM (Selvaraju et al. 2017) of the network's last maps: how much each pixel of the inputs raises the score of a class, or a
  // number; `labels` has one for each image. Returns float32 [images, height, width] on the CPU, from 0 to 1 in each image, with the values
  // of GradCAM of pytorch-grad-cam 1.5. The images are not seen in other views. Throws UsageError for a network without maps.
  torch::Tensor heatmaps(const torch::Tensor& images, std::span<const int64_t> labels);
  // Returns the `num_best` most probable classes or the numbers of each file. The files form one batch and are read by up to `num_threads`
  // threads. The heat maps are those of the first class or number.
  std::vector<Prediction> predict(std::span<const std::string> files, int64_t num_best, int num_threads, const Extras& extras);

 private:
  void sort_classes(std::span<const double> probabilities, int64_t num_best, Prediction& prediction) const;
  models::BackboneModel* backbone() const { return dynamic_cast<models::BackboneModel*>(model_.get()); }

  data::DatasetInfo samples_;
  std::shared_ptr<models::Model> model_;
  device::Placement placement_;
  task::TestTimeAugmentation tta_;
  OperatingPoint point_;
  ImageReader reader_;
};

}  // namespace trainer::inference
