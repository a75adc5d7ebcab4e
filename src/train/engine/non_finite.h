#pragma once
// Handles steps whose loss or gradients are not finite: finds the first non-finite value, undoes and saves the step, and ends the run if
// training.on_non_finite or the number of such steps in a row requires it. Also writes and reads a step's files, for `trainer replay`.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "train/engine/parts.h"
#include "train/engine/train_step.h"
#include "trainer/options.h"
#include "trainer/torch.h"

namespace trainer::engine {

// A step of a run, saved so that `trainer replay` can repeat it in one process.

struct StepRecord {
  int64_t step = 0;
  int64_t epoch = 0;
  double lr = 0;
  double loss_scale = 0;  // under float16; 0: not scaled
  int rank = 0;           // the rank that had these batches
  int world_size = 1;
  // Whether a rank's results depend on the batches of the other ranks (joint batch statistics, or a perturbation along the gradient of all
  // ranks, see train/optim/sam.cpp). If so, `batches` are those of all ranks.
  bool is_joined = false;
  int64_t num_group_samples = 0;                   // in the whole step, on all ranks
  std::vector<std::vector<int64_t>> batches = {};  // sample indices of each micro-step
  // For each of these samples, how often it occurs earlier in the epoch; empty for a micro-step in which all are 0.
  std::vector<std::vector<uint32_t>> occurrences = {};
  std::string first_non_finite = {};  // such as "the output of layer1.0.conv1"; empty: only the sum over the ranks is not finite
  bool repeats = true;                // false: the value was finite when the step was repeated
};

// Creates the folder, with step.json, model.pt (the parameters and buffers by their names, which Python's torch.load can read) and
// config.yaml: all that the step needs except the data.
void write_step(const std::filesystem::path& folder, const StepRecord& record, const torch::nn::Module& model,
                const std::string& config_text);
std::filesystem::path step_config_file(const std::filesystem::path& folder);
// All files that write_step() writes.
std::vector<std::filesystem::path> step_files(const std::filesystem::path& folder);

// read_step() and read_model() throw DataError if a file is missing or invalid.
StepRecord read_step(const std::filesystem::path& folder);
// Loads the saved state into `model`, which must have the same configuration.
void read_model(const std::filesystem::path& folder, torch::nn::Module& model);

// Handles non-finite steps in a run.

class NonFiniteSteps {
 public:
  // Saves a step and returns its folder; called on one rank.
  using Save = std::function<std::filesystem::path(const StepRecord& record)>;

  // `parts` and `train_step` must outlive this object. If `save` is empty, steps are not saved.
  NonFiniteSteps(OnNonFinite policy, Parts& parts, TrainStep& train_step, Save save);

  // Whether check() must be called after every step. If not (on a GPU with OnNonFinite::kStop), a call at the end of each logging interval
  // is enough, because the steps after a non-finite one change nothing.
  bool checks_each_step() const;

  // Collective, to be called after the update of step `step` of `part`; waits for the device. If a step was not finite, undoes it, and
  // throws AgreedError if the policy or the number of consecutive non-finite steps ends the run. Otherwise starts to load the batches from
  // the next step on, and returns a message on rank 0. Returns an empty text on the other ranks, and when all steps were finite.
  std::string check(const EpochPart& part, int64_t step);

 private:
  // Repeats this rank's part of a step for its first non-finite value. Returns also the position of that value among all observations.
  std::pair<StepRecord, int64_t> examine(const EpochPart& part, int64_t step);
  std::string describe(const StepRecord& record, int64_t seen_at);
  // The record of the rank that has the first non-finite value.
  StepRecord make_record(const EpochPart& part, int64_t step);
  std::string save(const StepRecord& record);

  OnNonFinite policy_;
  Parts& parts_;
  TrainStep& train_step_;
  Save save_;
  int64_t num_saved_ = 0;
  int64_t last_step_ = -2;  // the last step that was not finite
  int64_t num_in_row_ = 0;
};

// Search for the first non-finite value of a step.

// A tensor of a forward and backward pass.
struct Observation {
  std::string what;  // such as "the output of layer1.0.conv1"
  std::vector<int64_t> shape;
  double largest = 0;          // the largest absolute value of its finite elements
  int64_t num_non_finite = 0;  // number of its non-finite elements
};

// Collective like TrainStep::run: repeats the passes of one micro-step with an observer. Returns, in order, non-finite parameters, the
// images, the outputs of all layers, the loss, and non-finite gradients of this rank alone. Changes nothing except that gradients are
// cleared.
std::vector<Observation> observe_micro_step(Parts& parts, TrainStep& train_step, const data::Batch& batch, const MicroStep& micro_step);

// The first observation with non-finite values, or null.
const Observation* first_non_finite(const std::vector<Observation>& observations);

}  // namespace trainer::engine
