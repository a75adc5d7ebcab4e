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
  config::Shards shards = config::Shards::kPad;
  bool drop_last = true;
};

// What these ranks take of an epoch: all of it, or the rest, where a run is continued. Positions are those of the order that all ranks
// share.
struct EpochPart {
  int64_t epoch = 0;
  int64_t first_step = 0;           // number of its first step, since the beginning of the run
  int64_t first_step_in_epoch = 0;  // as these ranks would have counted
  int64_t first_sample = 0;         // position
  int64_t end_sample = 0;           // position, padded or cut
  int64_t num_batches = 0;          // micro-steps on each rank
  int64_t num_steps = 0;
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

// What is left of an epoch of whose samples `num_taken` were taken, by as many ranks or others, before step number `next_step`.
EpochPart rest_of_epoch(const Plan& plan, int64_t epoch, int64_t next_step = 0, int64_t num_taken = 0);

// Of a step, by its number since the beginning of the run, that is in `part`.
int64_t first_batch_of(const Plan& plan, const EpochPart& part, int64_t step);
int64_t first_sample_of(const Plan& plan, const EpochPart& part, int64_t step);
int64_t end_sample_of(const Plan& plan, const EpochPart& part, int64_t step);
int64_t samples_in_step(const Plan& plan, const EpochPart& part, int64_t step);
std::vector<MicroStep> micro_steps_of(const Plan& plan, const EpochPart& part, int rank, int64_t step);
// Where in the whole training it is, in steps of these ranks: what the learning rate is a function of.
int64_t schedule_step_of(const Plan& plan, const EpochPart& part, int64_t step);

}  // namespace trainer::engine
