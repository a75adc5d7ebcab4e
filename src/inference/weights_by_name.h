#pragma once
// Initial weights that come from a file or from the training data.

#include <torch/torch.h>

#include <string>
#include <vector>

#include "data/pipeline.h"
#include "trainer/model.h"
#include "trainer/state.h"

namespace trainer::inference {

// Fills parameters and buffers by their names from a state_dict, bare or in a dictionary, with or without a prefix such as "module." of
// DistributedDataParallel or "model." of Lightning, and "_orig_mod." of torch.compile(): the dictionary and the prefix are taken that fit
// best. Converts to the model's dtype. A num_batches_tracked may be missing, as in files written before PyTorch 0.4.1. If other entries are
// missing, unexpected or of another shape, throws one CheckpointError that names them, of each kind at most ten, and changes nothing.
// `source`: the origin of `file`, for messages.
void load_weights(const state::Tree& file, const std::string& source, torch::nn::Module& model);

// The same, or with `averaged` the moving averages that the checkpoint of a run with training.ema holds.
void load_weights(const state::Tree& file, const std::string& source, bool averaged, torch::nn::Module& model);

// Messages for the log.
struct InitReport {
  std::string text;
  std::string warning;  // when most tensors of the model are not in the file; else empty
};

// The last layer that gives the network's outputs, "fc" or "heads.head"; empty: none was found.
std::string head_of(const models::Model& model);

// Initial weights, as load_weights(). If not `strict`, loads the entries that fit, and throws only if none does. If the file tells other
// names of its classes than `class_names`, which may be empty, and is not `strict`, each class gets the row of the last layer that has its
// name in the file, and the others keep their initial values.
InitReport init_model(const state::Tree& file, const std::string& source, bool strict, torch::nn::Module& model,
                      const std::vector<std::string>& class_names = {});
// From that file, which `checkpoint::read_any` reads.
InitReport init_model(const std::string& file, bool strict, torch::nn::Module& model, const std::vector<std::string>& class_names = {});

// The same, but the network's last layer keeps its values where only its number of outputs differs from that of the file's. Throws
// CheckpointError if anything else does not fit.
InitReport init_all_but_head(const state::Tree& file, const std::string& source, models::Model& model,
                             const std::vector<std::string>& class_names = {});

// Model::fit() with the first training images, transformed like those of validation. Does nothing for a network that needs none.
void fit_model(models::Model& model, const data::Dataset& train, const data::Pipeline& pipeline);

}  // namespace trainer::inference
