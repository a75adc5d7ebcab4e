#pragma once
// The samples that a run trains on and validates with.

#include <memory>
#include <vector>

#include "engine/plan.h"
#include "input/data_loader.h"
#include "input/distributed_sampler.h"
#include "optim/lr_scheduler.h"

namespace trainer::engine {

// The samples of training or of validation, and how they become batches. Members refer to those before them.
struct DataSource {
  std::unique_ptr<input::Dataset> files;   // as opened
  std::unique_ptr<input::Dataset> subset;  // the samples that are used, where not all are
  std::unique_ptr<input::Pipeline> pipeline;
  std::unique_ptr<input::DataLoader> loader;

  const input::Dataset& dataset() const { return subset ? *subset : *files; }
};

// The data of a run, and what follows from its size.
struct Data {
  DataSource train;
  DataSource validation;
  Plan plan;
  std::unique_ptr<input::DistributedSampler> sampler;
  optim::LrSchedule lr_factor;

  // The training samples of this rank from the first batch of step `step` to the end of `part`, in their order.
  std::vector<int64_t> indices_from(const EpochPart& part, int64_t step);
  // Begins to load them.
  void begin(const EpochPart& part, int64_t step);
  // The next batch, which stays as it is until the next call. Throws DataError naming the sample that cannot be read, and
  // std::logic_error naming the epoch when all batches have been taken.
  const input::Batch& next();

 private:
  int64_t epoch_ = 0;  // that is being loaded
};

}  // namespace trainer::engine
