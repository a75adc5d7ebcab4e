#pragma once
// A file with the weights of a network: a checkpoint, which also holds its experiment and the names of its classes, or a state_dict or
// safetensors file.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "data/dataset.h"
#include "export/interface.h"
#include "inference/description.h"
#include "trainer/state.h"

namespace trainer::session {

// Why a folder is refused.
inline constexpr const char* kHoldsNoCheckpoint = "this folder holds no checkpoint; give the folder of a run that has saved one, or a file";

// `folder`: a run directory, or a folder of checkpoints. Returns what `find` finds in the first of the places where its checkpoints can
// lie; empty if all that it returns is.
std::filesystem::path find_in_run(const std::filesystem::path& folder,
                                  const std::function<std::filesystem::path(const std::filesystem::path& place)>& find);

// `path` itself, or if it is a run directory or its folder of checkpoints, the best checkpoint there, or the newest if none is the best.
// Throws CheckpointError if such a folder has none.
std::filesystem::path checkpoint_of(const std::filesystem::path& path);

class NetworkFile {
 public:
  // Reads the file checkpoint_of(path) whole. Throws CheckpointError.
  explicit NetworkFile(const std::filesystem::path& path);

  const std::string& path() const { return path_; }
  const state::Tree& tree() const { return tree_; }
  bool has_experiment() const;
  // The experiment of a checkpoint with these overrides, without initial weights from another file. Throws CheckpointError if the file
  // holds none, and the errors of config::load().
  config::Experiment load_experiment(const std::vector<std::string>& overrides, const config::Registries& registries) const;
  // That of the file `config`, or if it is empty the checkpoint's. Throws UsageError if there is none.
  config::Experiment load_experiment(const std::filesystem::path& config, const std::vector<std::string>& overrides,
                                     const config::Registries& registries) const;
  // Of a checkpoint's classes; empty if the file does not name them.
  std::vector<std::string> class_names() const;
  // Of the numbers that the network computes; empty if they have none.
  std::vector<std::string> target_names() const;
  // Of the samples that the network was trained on; empty if the file does not tell.
  std::vector<int64_t> sample_shape() const;
  // Of the latest step of a checkpoint.
  struct Progress {
    int64_t epoch = 0;
    int64_t step = 0;
  };
  std::optional<Progress> progress() const;
  // Fills the network with the parameters and buffers, or with `averaged` the moving averages. Throws CheckpointError.
  void load_weights(bool averaged, torch::nn::Module& model) const;

 private:
  std::string path_;
  state::Tree tree_;
};

// What a program has to know to use a network that is in a file: its classes, and how images become its input.

// The properties of the samples that the network was trained on, from the experiment's data set; those that depend on its files, from the
// network's file if that has them.
data::DatasetInfo samples_of(const config::Experiment& experiment, const NetworkFile& file);

// Throws UsageError for a file of weights alone whose network learned normalised numbers, because it does not tell their mean.
void require_target_summary(const config::Experiment& experiment, const NetworkFile& file);

// What is needed to predict with the network. Throws as require_target_summary().
inference::Description description_of(const config::Experiment& experiment, const NetworkFile& file);

// The metadata of exported networks (docs/evaluation.md): a JSON object with the version of the program, the checksum of the network's
// file, the network's name, the names of its classes, the shape of one input, dataset.validation_transforms with all their values, and the
// operating point of its parameters, or with `averaged` of their moving averages, if it was calibrated. `interface`: of a file that
// computes.
std::string describe_network(config::Experiment& experiment, const NetworkFile& file, bool averaged,
                             const std::optional<exported::Interface>& interface);

}  // namespace trainer::session
