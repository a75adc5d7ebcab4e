#pragma once
// Classifies image files with a trained network.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "engine/parts.h"
#include "session/image_reader.h"
#include "session/network_file.h"

namespace trainer::session {

struct Prediction {
  std::vector<int64_t> classes = {};       // the most probable first
  std::vector<double> probabilities = {};  // of each of them
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
  // The `num_best` most probable classes of each file, as one batch, read by up to `num_threads` threads.
  std::vector<Prediction> predict(std::span<const std::string> files, int64_t num_best, int num_threads);

 private:
  data::DatasetInfo samples_;
  engine::Network network_;
  task::TestTimeAugmentation tta_;
  ImageReader reader_;
};

}  // namespace trainer::session
