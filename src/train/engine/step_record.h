#pragma once
// A step of a run, saved so that `trainer replay` can repeat it in one process.

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trainer::engine {

struct StepRecord {
  int64_t step = 0;
  int64_t epoch = 0;
  double lr = 0;
  std::optional<double> loss_scale = {};  // under float16
  int rank = 0;                           // the rank that had these batches
  int world_size = 1;
  // Whether what a rank computes depends on the batches of the others (joint batch statistics, or a perturbation along the gradient of all,
  // see train/optim/sam.cpp); `batches` are those of all ranks then.
  bool is_joined = false;
  int64_t num_group_samples = 0;              // in the whole step, on all ranks
  std::vector<std::vector<int64_t>> batches;  // sample indices of each micro-step
  // Of the same samples, in the order of the epoch; those of a micro-step may be empty: all are 0.
  std::vector<std::vector<uint32_t>> occurrences;
  std::string first_non_finite = {};  // "the output of layer1.0.conv1"; empty: only the sum over the ranks
  bool repeats = true;                // false: it was finite when the step was repeated
};

// Creates the folder, with step.json, model.pt (the parameters and buffers by their names, which Python's torch.load can read) and
// config.yaml: all that the step needs except the data.
void write_step(const std::filesystem::path& folder, const StepRecord& record, const torch::nn::Module& model,
                const std::string& config_text);
std::filesystem::path step_config_file(const std::filesystem::path& folder);
// All files that write_step() writes.
std::vector<std::filesystem::path> step_files(const std::filesystem::path& folder);

// These throw DataError if a file is missing or invalid.
StepRecord read_step(const std::filesystem::path& folder);
// Fills `model`, which has the same configuration.
void read_model(const std::filesystem::path& folder, torch::nn::Module& model);

}  // namespace trainer::engine
