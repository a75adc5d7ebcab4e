#pragma once
// The objects that a run trains with. src/run/session builds them, from an experiment file or for trainer::Trainer.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/batch_transforms/batch_mixer.h"
#include "data/data_loader.h"
#include "data/sharded_sampler.h"
#include "device/placement.h"
#include "distributed/activity.h"
#include "distributed/data_parallel.h"
#include "distributed/process_groups.h"
#include "train/engine/device_batches.h"
#include "train/engine/freezing.h"
#include "train/engine/plan.h"
#include "train/engine/shared_batches.h"
#include "train/optim/ema.h"
#include "train/optim/lr_scheduler.h"
#include "train/optim/optimizer.h"
#include "trainer/amp.h"
#include "trainer/model.h"
#include "trainer/options.h"
#include "trainer/task.h"
#include "trainer/torch.h"

namespace trainer::engine {

// The process groups of a run. Collectives of different groups do not wait for each other. The defaults are for a single process.
struct Ranks {
  std::shared_ptr<distributed::ProcessGroup> world = std::make_shared<distributed::ProcessGroup>();
  // Batch statistics are gathered while `world` still sums buckets of gradients.
  std::shared_ptr<distributed::ProcessGroup> batch_norm = world;
  std::shared_ptr<distributed::ProcessGroup> control = world;
  // The group whose first rank reads the data of all its ranks; null: this rank reads its own data.
  std::shared_ptr<distributed::ProcessGroup> reading = nullptr;
  std::vector<distributed::RankInfo> infos = {};  // of all ranks, by rank
  // What this rank is doing, for the detection of failures and stragglers.
  std::shared_ptr<distributed::Activity> activity = std::make_shared<distributed::Activity>();

  bool reads_data() const { return !reading || reading->rank() == 0; }
};

struct RankOptions {
  bool synchronises_statistics = true;  // whether Ranks::batch_norm is a separate group, which needs memory on a GPU
  Distribution distribution = Distribution::kLocal;
  std::optional<int64_t> group_size = {};  // number of consecutive ranks that share a reader; not set: the ranks of each host
};
// Collective. `groups` must outlive the result. Throws OptionError if `group_size` does not divide the number of ranks.
Ranks make_ranks(distributed::ProcessGroups& groups, const RankOptions& options = {});

// The groups of ranks that share a reader, the first rank of their group. Each rank of the run is in one group; groups and their ranks
// are in ascending order. `ranks`: all ranks of the run, by rank. Throws like make_ranks().
std::vector<std::vector<int>> reading_groups(const std::optional<int64_t>& group_size, const std::vector<distributed::RankInfo>& ranks);

// Independent streams of random numbers: the second argument of mix_seed(), after the seed of the run.
enum RandomStream : uint64_t { kInitStream = 1, kAugmentStream, kSplitStream, kBatchMixStream };
// The seed of the random transforms of all samples. `seed`: of the run.
uint64_t augmentation_seed(uint64_t seed);

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
  // The samples `of` with their stored data replaced by `features`, which have the same order.
  Samples(const Samples& of, std::shared_ptr<const data::Dataset> features)
      : size_(of.size_), info_(features->info()), files_(of.files_), used_(std::move(features)) {}
  // Samples that another rank reads; `info` lacks the names of the classes and targets.
  Samples(int64_t size, data::DatasetInfo info) : size_(size), info_(std::move(info)) {}

  int64_t size() const { return size_; }
  const data::DatasetInfo& info() const { return info_; }
  // The stored samples. With cached features, info() describes the features instead.
  const data::DatasetInfo& stored_info() const { return files_ ? files_->info() : info_; }
  // To be called only on a rank that reads the samples. files(): all samples that were opened. dataset(): those of them that belong to this
  // part (training or validation), or their cached features.
  const data::Dataset& files() const { return *files_; }
  const data::Dataset& dataset() const { return *used_; }
  const std::shared_ptr<const data::Dataset>& shared_dataset() const { return used_; }

 private:
  int64_t size_;
  data::DatasetInfo info_;
  std::shared_ptr<const data::Dataset> files_;
  std::shared_ptr<const data::Dataset> used_;
};

// The samples of a run.
struct OpenedSamples {
  Samples train;
  std::optional<Samples> validation = {};  // empty if the run does not validate
};

// The samples of a run, and the order in which training uses them.
struct TrainingSamples {
  OpenedSamples opened;
  std::optional<data::ShardedSampler> sampler;      // only on a rank that reads samples
  int64_t samples_per_epoch = 0;                    // of the sampler
  std::optional<data::TargetSummary> targets = {};  // of the training samples, for a task that needs it
};
// Divides the order of the sampler among the ranks. Not collective.
TrainingSamples make_training_samples(OpenedSamples samples, data::Sampler sampler, data::Shards shards, const Ranks& ranks);

// How samples become batches.
struct SourceOptions {
  std::vector<ComponentConfig> transforms = {};
  data::LoadingOptions loading = {};
  uint64_t seed = 0;  // of the run
  Distribution distribution = Distribution::kLocal;
  std::function<void(const std::string& text)> report_skipped = {};  // as in data::LoaderOptions
};

// The pipeline that prepares samples for a network of this placement. Throws like data::Pipeline.
data::Pipeline make_pipeline(const std::vector<ComponentConfig>& transforms, const data::DatasetInfo& info,
                             const device::Placement& placement);

// Samples, and the objects that make batches of them. Members refer to earlier ones.
struct DataSource {
  // Not collective. Throws UsageError for transforms that cannot be applied to the samples, and Error when memory runs out.
  DataSource(Samples samples, const SourceOptions& options, int64_t batch_size, const device::Placement& placement, const Ranks& ranks);

  Samples samples;
  data::Pipeline pipeline;
  std::unique_ptr<BatchSource> batches;
  DeviceBatches on_device;
};

struct DataOptions {
  PlanOptions plan = {};
  SourceOptions train = {};
  SourceOptions validation = {};
  int64_t validation_batch_size = 1;  // lowered if there are fewer samples; that of training follows from the plan
  std::vector<ComponentConfig> batch_transforms = {};
  int64_t num_unmixed_epochs = 0;  // number of epochs without batch transforms, at the end of the run
};

// The data of a run, and the plan that follows from its size.
struct Data {
  // Not collective. Throws like make_plan() and DataSource.
  Data(TrainingSamples samples, const DataOptions& options, const device::Placement& placement, const Ranks& ranks);

  Plan plan;
  DataSource train;
  std::optional<DataSource> validation;           // empty if the run does not validate
  std::optional<data::ShardedSampler> sampler;    // only on a rank that reads samples
  std::unique_ptr<data::BatchMixer> batch_mixer;  // null without batch transforms
  int64_t num_unmixed_epochs = 0;                 // number of epochs without batch transforms, at the end of the run
  int64_t loaded_epoch = 0;                       // the epoch of the batches that begin() has started to load

  // The samples of a rank from the first batch of step `step` to the end of `part`. Only on a rank that reads the data.
  RankShard shard_for(int rank, const EpochPart& part, int64_t step);
  // Starts to load the batches of this rank from step `step` to the end of `part`. Like next(), collective over the ranks that share a
  // reader.
  void begin(const EpochPart& part, int64_t step);
  // The next batch, valid until the next call. Throws like BatchSource::next(), and std::logic_error naming the epoch when all batches have
  // been taken.
  const data::Batch& next();
};

struct NetworkOptions {
  uint64_t seed = 0;  // of the run
  bool sync_batch_norm = true;
  optim::ParameterOptions parameters = {};
  amp::GradScalerOptions grad_scaler = {};
  std::string name = "the network";  // for messages
  PlaceOf place_of = key_itself;
};

// Functions that make the network (on the CPU), its task, and its optimizer (when the network is on its device).
using MakeModel = std::function<std::shared_ptr<models::Model>(const models::BuildContext& context)>;
using MakeTask = std::function<std::unique_ptr<task::Task>()>;
using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(std::vector<optim::ParamGroup> groups)>;

// Model, task and optimizer, which need no data.
struct Network {
  // Not collective. Calls the functions in this order; throws their exceptions, and UsageError if one returns null. With sync_batch_norm,
  // the batch statistics of all layers, including those of LibTorch, are computed over all ranks. Freezes parameters like freeze().
  Network(const MakeModel& make_model, const MakeTask& make_task, const MakeOptimizer& make_optimizer, const NetworkOptions& options,
          const device::Placement& placement, const Ranks& ranks);

  device::Placement placement;  // the run's; its memory format is the network's preferred one unless the run sets it
  at::Generator dropout_generator;
  std::shared_ptr<models::Model> model;  // on the placement's device
  std::unique_ptr<task::Task> task;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::optional<amp::GradScaler> grad_scaler;  // under float16 autocast
  FrozenAtFirst frozen_at_first;
};

struct Parts {
  // Collective: sends the weights of the first rank to all.
  Parts(Network network, Data data, optim::LrSchedule lr_schedule, Ranks ranks, const distributed::DataParallelOptions& options,
        const std::optional<optim::EmaOptions>& ema_options);

  // Collective: to be called when the set of trained parameters has changed.
  void make_data_parallel();

  Network network;
  Data data;
  optim::LrSchedule lr_schedule;
  Ranks ranks;
  distributed::DataParallelOptions data_parallel_options;
  std::unique_ptr<distributed::DataParallel> data_parallel;  // of the model
  std::unique_ptr<optim::Ema> ema;                           // null without averaged parameters
};

// The learning rate of a step in `part`. `step` counts from the start of the run.
double lr_at(const Parts& parts, const EpochPart& part, int64_t step);

}  // namespace trainer::engine
