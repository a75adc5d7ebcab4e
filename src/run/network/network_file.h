#pragma once
// A file with the weights of a network: a checkpoint, which also contains its experiment and the names of its classes, or a state_dict or
// safetensors file.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "data/dataset.h"
#include "export/interface.h"
#include "inference/description.h"
#include "train/engine/run_state.h"
#include "trainer/state.h"

namespace trainer::network {

class NetworkFile {
 public:
  // Reads the whole file checkpoint::checkpoint_of(path). Throws CheckpointError.
  explicit NetworkFile(const std::filesystem::path& path);

  const std::string& path() const { return path_; }
  const state::Tree& tree() const { return tree_; }
  bool has_experiment() const;
  // The experiment of a checkpoint, or of the file `config`, with these overrides, without initial weights from another file. Throws the
  // errors of config::load(), and UsageError if the file contains no experiment.
  config::Experiment load_experiment(const std::vector<std::string>& overrides, const config::Registries& registries,
                                     const std::filesystem::path& config = {}) const;
  // The names of a checkpoint's classes; empty if the file does not contain them.
  std::vector<std::string> class_names() const;
  // The names of the targets of a regression; empty if they have none.
  std::vector<std::string> target_names() const;
  // The shape of the samples that the network was trained on; empty if the file does not contain it.
  std::vector<int64_t> sample_shape() const;
  // Of a checkpoint.
  std::optional<engine::Progress> progress() const;
  // Loads the parameters and buffers, or with `averaged` the moving averages, into the network. Throws CheckpointError.
  void load_weights(bool averaged, torch::nn::Module& model) const;

 private:
  config::Experiment own_experiment(const std::vector<std::string>& overrides, const config::Registries& registries) const;

  std::string path_;
  state::Tree tree_;
};

// What a program needs to use the network of a file: its classes, and how images become its input.

// The properties of the samples that the network was trained on, from the experiment's data set. Properties that the network's file stores,
// such as class names, take precedence.
data::DatasetInfo samples_of(const config::Experiment& experiment, const NetworkFile& file);

// Throws UsageError for a file of weights whose network learned normalised targets, because the file lacks their mean and standard
// deviation.
void require_target_summary(const config::Experiment& experiment, const NetworkFile& file);

// The information needed to predict with the network. Throws like require_target_summary().
inference::Description description_of(const config::Experiment& experiment, const NetworkFile& file);

// The metadata of exported networks (docs/evaluation.md): a JSON object with the version of the program, the checksum of the network's
// file, the network's name, the names of its classes, the shape of one input, how image files are read, dataset.validation_transforms with
// all their values, and, if the network was calibrated, its operating point (with `averaged`: that of the moving averages). `interface`: of
// a file that contains the computation; its input and outputs are then added.
std::string describe_network(const config::Experiment& experiment, const NetworkFile& file, bool averaged,
                             const std::optional<exported::Interface>& interface);

}  // namespace trainer::network
