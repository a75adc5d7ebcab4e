#pragma once
// Everything that a run trains with; built from a configuration by src/run/session.

#include <memory>
#include <optional>
#include <vector>

#include "data/batch_transforms/batch_mixer.h"
#include "data/data_loader.h"
#include "data/sharded_sampler.h"
#include "device/placement.h"
#include "distributed/activity.h"
#include "distributed/data_parallel.h"
#include "distributed/process_groups.h"
#include "train/engine/options.h"
#include "train/engine/plan.h"
#include "train/engine/shared_batches.h"
#include "train/optim/ema.h"
#include "train/optim/lr_scheduler.h"
#include "train/optim/optimizer.h"
#include "trainer/amp.h"
#include "trainer/model.h"
#include "trainer/task.h"

namespace trainer::engine {

// The process groups of a run: a separate one for each purpose whose collectives must not wait for those of another. By default those of a
// single process.
struct Ranks {
  std::shared_ptr<distributed::ProcessGroup> world = std::make_shared<distributed::ProcessGroup>();
  // Batch statistics are gathered while `world` still sums buckets of gradients.
  std::shared_ptr<distributed::ProcessGroup> batch_norm = world;
  std::shared_ptr<distributed::ProcessGroup> control = world;
  // In which the first rank reads the data for all; null: this rank reads its own.
  std::shared_ptr<distributed::ProcessGroup> reading = nullptr;
  std::vector<distributed::RankInfo> infos = {};  // of all ranks, by rank
  // What this rank does, for the detection of failures and stragglers.
  std::shared_ptr<distributed::Activity> activity = std::make_shared<distributed::Activity>();

  bool reads_data() const { return !reading || reading->rank() == 0; }
};
// Collective; without `reading`. `synchronises_statistics`: whether batch statistics need a group, whose connections cost memory on a GPU.
Ranks make_ranks(distributed::ProcessGroups& groups, bool synchronises_statistics = true);

// The samples of training or of validation.
class Samples {
 public:
  // All samples of `files`, or those at `indices`.
  explicit Samples(std::shared_ptr<const data::Dataset> files) : size_(files->size()), info_(files->info()), files_(files), used_(files) {}
  Samples(std::shared_ptr<const data::Dataset> files, std::vector<int64_t> indices)
      : size_(static_cast<int64_t>(indices.size())),
        info_(files->info()),
        files_(files),
        used_(std::make_shared<data::Subset>(files, std::move(indices))) {}
  // Those that another rank reads; `info` lacks the names of the classes.
  Samples(int64_t size, data::DatasetInfo info) : size_(size), info_(std::move(info)) {}

  int64_t size() const { return size_; }
  const data::DatasetInfo& info() const { return info_; }
  // On a rank that reads them: all samples as they were opened, and those of them to use.
  const data::Dataset& files() const { return *files_; }
  const data::Dataset& dataset() const { return *used_; }

 private:
  int64_t size_;
  data::DatasetInfo info_;
  std::shared_ptr<const data::Dataset> files_;
  std::shared_ptr<const data::Dataset> used_;
};

// Samples, and how they become batches. Members refer to those before them.
struct DataSource {
  Samples samples;
  data::Pipeline pipeline;
  std::unique_ptr<data::DataLoader> loader;  // null where another rank reads
  std::unique_ptr<BatchSource> batches;
};

// The data of a run, and what depends on its size.
struct Data {
  DataSource train;
  std::optional<DataSource> validation;           // empty if the run does not validate
  std::unique_ptr<data::ShardedSampler> sampler;  // null where another rank reads
  Plan plan;
  std::unique_ptr<data::BatchMixer> batch_mixer;  // null without dataset.batch_transforms
  optim::LrSchedule lr_schedule;
  int64_t loaded_epoch = 0;  // of the batches that begin() has started to load

  // What a rank takes from the first batch of step `step` to the end of `part`. Only on a rank that reads the data.
  RankShare share_of(int rank, const EpochPart& part, int64_t step);
  // Starts to load these samples. As next(), collective over the ranks that share a reader.
  void begin(const EpochPart& part, int64_t step);
  // The next batch, valid until the next call. Throws as BatchSource::next(), and std::logic_error naming the epoch when all batches have
  // been taken.
  const data::Batch& next();
};

// Model, task and optimizer, which need no data.
struct Network {
  device::Placement placement;  // of the run; the memory format is the one that the network prefers if the configuration says `auto`
  at::Generator dropout_generator;
  std::shared_ptr<models::Model> model;  // on the placement's device
  std::unique_ptr<task::Task> task;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::optional<amp::GradScaler> grad_scaler;  // under float16 autocast
};

struct Parts : Network, Data {
  Ranks ranks;
  std::unique_ptr<distributed::DataParallel> data_parallel;  // of the model
  std::unique_ptr<optim::Ema> ema;                           // null without training.ema
};

// The learning rate of step `step` of `part`.
double lr_at(const Parts& parts, const EpochPart& part, int64_t step);

// The groups of ranks in which one rank reads the data for all (dataset.distribution).

// Each rank of the run is in one group; groups and their ranks are ascending, and the first rank of a group reads. `ranks`: of the run, by
// rank. `group_size`: of consecutive ranks; not set: those of each host. Throws OptionError if it does not divide their number.
std::vector<std::vector<int>> reading_groups(const std::optional<int64_t>& group_size, const std::vector<distributed::RankInfo>& ranks);

// Collective over all ranks: the group of this rank. Null if it reads its own samples: with Distribution::kLocal, or alone in its
// group.
std::shared_ptr<distributed::ProcessGroup> make_reading_group(Distribution distribution, const std::optional<int64_t>& group_size,
                                                              distributed::ProcessGroups& groups);

}  // namespace trainer::engine
