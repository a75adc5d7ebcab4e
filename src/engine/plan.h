#pragma once
// The arithmetic of batches and steps: what follows from the configuration and the size of the training set.

#include <cstdint>
#include <vector>

#include "config/experiment.h"

namespace trainer::engine {

struct Plan {
  int world_size = 1;
  int64_t batch_size = 0;         // of a micro-step on one rank
  int64_t global_batch_size = 0;  // of an optimizer step, all ranks together
  int64_t accumulation_steps = 1;
  int64_t batches_per_epoch = 0;  // the same on every rank
  int64_t steps_per_epoch = 0;    // the last one may have fewer micro-steps
  int64_t num_epochs = 0;
  int64_t total_steps = 0;
  int64_t num_train = 0;   // samples of the training set
  int64_t num_shared = 0;  // samples that the ranks share in an epoch: padded, cut or exact
};

// One pass over a batch: a step is made of one or several.
struct MicroStep {
  int64_t step = 0;               // since the beginning of the run
  int64_t number = 0;             // of the micro-step, from 0
  int64_t count = 1;              // micro-steps of the step
  int64_t num_group_samples = 0;  // of the whole step: of all its micro-steps, on all ranks
  int64_t stream = 0;             // of its random numbers within the step: every micro-step of every rank has one

  bool is_first() const { return number == 0; }
  bool is_last() const { return number + 1 == count; }
};

// Throws UsageError when no batch can be made (fewer samples than a batch under drop_last), or when the ranks cannot share the global
// batch.
Plan make_plan(const config::Experiment& experiment, int64_t num_train, int world_size);

// The batch of an epoch that a step begins with.
int64_t first_batch_of(const Plan& plan, int64_t step);
// Samples of all ranks in the group of micro-steps that begins with batch number `first_batch` of an epoch.
int64_t samples_in_group(const Plan& plan, int64_t first_batch);
// The micro-steps of a step, as `rank` takes them.
std::vector<MicroStep> micro_steps_of(const Plan& plan, int rank, int64_t step);

}  // namespace trainer::engine
