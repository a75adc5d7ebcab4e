#pragma once
// The numbers of batches and steps of a run, computed from the options and the number of samples in an epoch.

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/options.h"

namespace trainer::engine {

struct Plan {
  int world_size = 1;
  int64_t batch_size = 0;         // largest number of samples in a micro-step on one rank; full micro-steps differ by at most one sample
  int64_t global_batch_size = 0;  // samples of an optimizer step on all ranks together
  int64_t accumulation_steps = 1;
  int64_t batches_per_epoch = 0;      // the same on every rank
  int64_t steps_per_epoch = 0;        // the last one may have fewer micro-steps
  std::optional<int64_t> num_epochs;  // not set: training ends after total_steps, perhaps within an epoch
  int64_t total_steps = 0;
  int64_t samples_per_epoch = 0;  // length of the order of samples that all ranks share, before it is padded or cut
  data::Shards shards = data::Shards::kPad;
  bool drop_last = true;
  std::vector<SmallerImages> size_schedule = {};

  // The number of epochs, from the first one on, that end before the fraction of this item of `size_schedule`.
  int64_t num_epochs_until(const SmallerImages& item) const;
  // The length in pixels to which the shorter edge of this epoch's training images is scaled; 0: they are not scaled.
  int64_t image_size_in(int64_t epoch) const;
};

// The part of an epoch in which these ranks train: the whole epoch, the rest after a resume, or the beginning of the last epoch if
// training.steps ends within it. Positions refer to the order of samples that all ranks share.
struct EpochPart {
  int64_t epoch = 0;
  int64_t first_step = 0;           // number of its first step since the start of the run
  int64_t first_step_in_epoch = 0;  // counted as if the present number of ranks had trained the whole epoch
  int64_t first_sample = 0;         // position
  int64_t end_sample = 0;           // position (exclusive), after padding or cutting the order
  int64_t num_batches = 0;          // micro-steps on each rank
  int64_t num_steps = 0;
  bool ends_epoch = true;  // false: training ends after these steps, before the end of the epoch
  int64_t num_epochs = 0;  // of the whole training, if the present number of ranks trains the rest

  bool is_last() const { return epoch + 1 == num_epochs; }
};

// One forward and backward pass over a batch; a step has one or several.
struct MicroStep {
  int64_t step = 0;               // since the start of the run
  int64_t number = 0;             // of the micro-step, from 0
  int64_t count = 1;              // micro-steps of the step
  int64_t num_group_samples = 0;  // in all micro-steps of the step, on all ranks
  int64_t stream = 0;             // number of the random stream: different for each micro-step of a step and each rank
  int64_t epoch = 0;

  bool is_first() const { return number == 0; }
  bool is_last() const { return number + 1 == count; }
};

// The number of samples in an optimizer step on all ranks together. Throws OptionError if it is too large.
int64_t global_batch_size(const PlanOptions& options, int world_size);

// The shape [channels, height, width] of images that are scaled to `size` pixels on the shorter edge.
std::vector<int64_t> scaled_shape(const std::vector<int64_t>& shape, int64_t size);
// Throws OptionError naming size_schedule unless training ends after a number of epochs, the sizes and fractions increase, and the sizes
// are less than the shorter edge of images of `shape` [channels, height, width], each with a target of its own instead of a mask.
void check_size_schedule(const PlanOptions& options, const std::vector<int64_t>& shape, bool has_masks);

// Throws OptionError if there are too few samples for a batch under drop_last, or if numbers are too large.
Plan make_plan(const PlanOptions& options, int64_t samples_per_epoch, int world_size);

// The rest of an epoch from step number `next_step` on, after any number of ranks have trained on `num_taken` of its samples.
EpochPart rest_of_epoch(const Plan& plan, int64_t epoch, int64_t next_step = 0, int64_t num_taken = 0);

// The number of samples in the batches of a rank in `part` before batch number `batch`. The batches of all ranks together cover the same
// positions for any number of ranks.
int64_t samples_before_batch(const Plan& plan, const EpochPart& part, int rank, int64_t batch);

// Properties of a step in `part`, by its number since the start of the run.
int64_t first_batch_of(const Plan& plan, const EpochPart& part, int64_t step);
int64_t end_sample_of(const Plan& plan, const EpochPart& part, int64_t step);
int64_t samples_in_step(const Plan& plan, const EpochPart& part, int64_t step);
std::vector<MicroStep> micro_steps_of(const Plan& plan, const EpochPart& part, int rank, int64_t step);
// The position of the step in the whole training: the argument of the learning-rate schedule. If the training ends after a number of
// epochs, the position is counted as if the present number of ranks had done the whole training.
int64_t schedule_step_of(const Plan& plan, const EpochPart& part, int64_t step);
// The number of steps from this one to the end of the training.
int64_t steps_left(const Plan& plan, const EpochPart& part, int64_t step);

}  // namespace trainer::engine
