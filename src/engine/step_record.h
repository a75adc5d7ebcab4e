#pragma once
// One step of a run, kept so that it can be taken again alone: what `trainer replay` reads.

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
  int rank = 0;                           // whose batches these are
  int world_size = 1;
  bool is_joined = false;                     // the batches are those of all ranks: their statistics are, too
  int64_t num_group_samples = 0;              // of the whole step, on all ranks
  std::vector<std::vector<int64_t>> batches;  // sample indices of each micro-step
  std::string first_non_finite = {};          // "the output of layer1.0.conv1"; empty: nothing that a rank computes alone
  bool repeats = true;                        // false: it was finite when the step was taken again
};

// Makes the folder, with step.json, model.pt (the parameters and buffers by their names, which Python's torch.load opens too) and
// config.yaml: all that the step needs but the data.
void write_step(const std::filesystem::path& folder, const StepRecord& record, const torch::nn::Module& model,
                const std::string& config_text);
std::filesystem::path step_config_file(const std::filesystem::path& folder);

// Throw DataError when a file is missing or is no such file.
StepRecord read_step(const std::filesystem::path& folder);
// Fills the model of the same configuration.
void read_model(const std::filesystem::path& folder, torch::nn::Module& model);

}  // namespace trainer::engine
