#pragma once
// Loads weights from a file by name, and computes initial values from the training data.

#include <string>
#include <vector>

#include "data/pipeline.h"
#include "trainer/model.h"
#include "trainer/state.h"
#include "trainer/torch.h"

namespace trainer::inference {

// Loads parameters and buffers by name from a state_dict. The state_dict may be inside a dictionary, and its names may have prefixes such
// as "module." of DistributedDataParallel, "model." of Lightning, or "_orig_mod." of torch.compile(); the function chooses the dictionary
// and the prefix that fit best. Converts to the model's dtype. A num_batches_tracked may be missing, as in files of PyTorch before
// 0.4.1. If other entries are missing, unexpected or do not fit (a different shape, or integers instead of floating-point numbers or the
// reverse), throws CheckpointError that lists up to ten of each kind, and changes nothing. `source`: the origin of `file`, for messages.
void load_weights(const state::Tree& file, const std::string& source, torch::nn::Module& model);

// The same; if `averaged`, loads the moving averages, which only the checkpoint of a run with training.ema contains.
void load_weights(const state::Tree& file, const std::string& source, bool averaged, torch::nn::Module& model);

// Messages for the log.
struct InitReport {
  std::string text;
  std::string warning;  // set if fewer than half of the model's tensors were loaded
};

// Returns the name of the last layer, which computes the network's outputs ("fc", "heads.head"), or an empty string if none was found.
std::string head_of(const models::Model& model);

// Loads initial weights like load_weights(). If not `strict`, loads the entries that fit, and throws only if none fits. If not `strict` and
// the file's class names differ from `class_names` (unless these are empty), each class whose name is in the file receives its row of the
// file's last layer; the other classes keep their initial values.
InitReport init_model(const state::Tree& file, const std::string& source, bool strict, torch::nn::Module& model,
                      const std::vector<std::string>& class_names = {});
// The same, for a file that checkpoint::load() can read.
InitReport init_model(const std::string& file, bool strict, torch::nn::Module& model, const std::vector<std::string>& class_names = {});

// Like init_model() without `strict`, but throws CheckpointError if any entry is missing, unexpected or does not fit. Only the last layer
// may be missing, or have another number of outputs in the file; it then keeps its initial values, except for rows loaded by class name.
InitReport init_all_but_head(const state::Tree& file, const std::string& source, models::Model& model,
                             const std::vector<std::string>& class_names = {});

// Calls Model::fit() with the first training images that can be read, transformed as for validation. Does nothing if
// Model::num_fitted_images() is 0. Throws DataError with the first image if none can be read.
void fit_model(models::Model& model, const data::Dataset& train, const data::Pipeline& pipeline);

}  // namespace trainer::inference
