#pragma once

#include "config/registries.h"
#include "distributed/supervision/failure.h"
#include "trainer/component.h"
#include "trainer/keys.h"
#include "trainer/options.h"

namespace trainer::config {

struct ModelSection {
  ComponentConfig component;
  std::string weights = {};
  std::string weights_mirror = {};
  std::string init_from = {};
  bool init_strict = true;
  std::vector<std::string> freeze = {};

  void describe(KeyTable& keys, const RegistryBase& models);
};

struct SplitSection {
  double validation = 0.2;
  double test = 0;
  std::string group = {};
  bool stratify = false;
  std::optional<int64_t> folds = {};
  int64_t fold = 0;
  int64_t seed = 0;

  bool operator==(const SplitSection&) const = default;
  void describe(KeyTable& keys);
};

// What to do about a sample that cannot be read or decoded.
enum class OnError { kFail, kSkip };

struct DatasetSection {
  ComponentConfig component;
  std::vector<ComponentConfig> train_transforms;
  std::vector<ComponentConfig> validation_transforms;
  std::vector<ComponentConfig> batch_transforms;
  std::vector<engine::SmallerImages> size_schedule = {};
  Auto<double> validation_split = {};
  bool stratify = true;
  std::optional<SplitSection> split = {};
  OnError on_error = OnError::kFail;
  std::string stage_to = {};
  engine::Distribution distribution = engine::Distribution::kLocal;
  Auto<int64_t> distribution_group_size = {};

  // Whether validation samples are some of the training files.
  bool holds_out() const { return split || validation_split.value.value_or(0) > 0; }

  void describe(KeyTable& keys, const Registries& registries);
};

struct DataLoaderSection {
  std::optional<int64_t> batch_size = {};
  std::optional<int64_t> global_batch_size = {};
  Auto<int64_t> num_workers = {};
  int64_t prefetch = 4;
  bool drop_last = true;
  data::Shards shards = data::Shards::kPad;
  Auto<bool> pin_memory = {};
  ComponentConfig sampler;

  void describe(KeyTable& keys, const RegistryBase& samplers);
};

struct TaskSection {
  ComponentConfig component;

  void describe(KeyTable& keys, const RegistryBase& tasks);
};

struct LossSection {
  ComponentConfig component;

  void describe(KeyTable& keys, const RegistryBase& losses);
};

struct OptimizerSection {
  ComponentConfig component;
  bool decay_norm_and_bias = true;
  bool skip_zero_grads = false;
  std::optional<double> layer_decay;
  std::vector<optim::ParameterGroupOptions> groups = {};

  void describe(KeyTable& keys, const RegistryBase& optimizers);
};

struct LrSchedulerSection {
  ComponentConfig component;
  optim::WarmupOptions warmup = {};

  void describe(KeyTable& keys, const RegistryBase& lr_schedulers);
};

struct TrainingSection {
  // Exactly one of `epochs` and `steps` is given.
  std::optional<int64_t> epochs;
  std::optional<int64_t> steps;
  int64_t accumulation_steps = 1;
  std::optional<double> max_grad_norm;
  std::optional<double> max_minutes;
  engine::OnNonFinite on_non_finite = engine::OnNonFinite::kStop;
  std::optional<optim::EmaOptions> ema;
  int64_t mixup_off_epochs = 0;
  bool cache_features = false;
  std::optional<int64_t> unfreeze_after;
  std::optional<engine::EarlyStoppingOptions> early_stopping;
  std::optional<int64_t> overfit_batches;
  bool extend = false;

  void describe(KeyTable& keys);
};

inline const Choices<device::ConvolutionChoice> kConvolutionChoices = {{"auto", device::ConvolutionChoice::kAuto},
                                                                       {"direct", device::ConvolutionChoice::kDirect},
                                                                       {"winograd2", device::ConvolutionChoice::kWinograd2},
                                                                       {"winograd4", device::ConvolutionChoice::kWinograd4}};

struct RuntimeSection {
  device::DeviceChoice device = device::DeviceChoice::kAuto;
  device::FloatType dtype = device::FloatType::kFloat32;
  Auto<int64_t> threads = {};
  bool deterministic = false;
  bool cudnn_benchmark = true;
  Auto<bool> allow_tf32 = {};
  Auto<bool> channels_last = {};
  device::ConvolutionChoice convolution = device::ConvolutionChoice::kAuto;
  device::FuseChoice fuse = device::FuseChoice::kAuto;
  device::CudaGraphChoice cuda_graph = device::CudaGraphChoice::kOff;
  std::string cuda_allocator = {};

  void describe(KeyTable& keys);
};

enum class AmpDtype { kAuto, kBfloat16, kFloat16 };

struct AmpSection {
  Auto<bool> enabled = {};
  AmpDtype dtype = AmpDtype::kAuto;
  amp::GradScalerOptions scaler = {};

  void describe(KeyTable& keys);
};

struct DistributedSection {
  distributed::BackendChoice backend = distributed::BackendChoice::kAuto;
  std::string init_method = "env://";
  std::string secret_file = {};
  int64_t timeout_seconds = 600;
  int64_t hang_seconds = supervision::kDefaultHangLimit.count();
  double straggler_ratio = 1.5;
  bool sync_batch_norm = true;
  distributed::DataParallelOptions data_parallel = {.gradient_as_bucket_view = true};

  void describe(KeyTable& keys);
};

inline const Choices<task::TestTimeAugmentation> kTtaChoices = {{"none", task::TestTimeAugmentation::kNone},
                                                                {"flip", task::TestTimeAugmentation::kFlip},
                                                                {"flip_and_shift", task::TestTimeAugmentation::kFlipAndShift}};

struct CheckpointSection {
  std::optional<int64_t> every_epochs = 1;
  std::optional<int64_t> every_steps = {};
  int64_t keep_last = 3;
  engine::MonitorOptions best = {};

  void describe(KeyTable& keys, const Registries& registries);
};

struct LoggingSection {
  int64_t every_steps = 50;
  bool tensorboard = true;
  bool all_ranks = false;
  std::optional<int64_t> histograms_every_epochs = {};
  std::vector<int64_t> profile_steps = {};
  std::vector<std::string> command = {};
  std::vector<ComponentConfig> sinks = {};

  void describe(KeyTable& keys, const RegistryBase& of_sinks);
};

}  // namespace trainer::config

namespace trainer {

// In the namespace of KeyTable, so that argument-dependent lookup finds these functions.
void describe(KeyTable& keys, optim::ParameterGroupOptions& options);
void describe(KeyTable& keys, engine::SmallerImages& options);
void describe(KeyTable& keys, optim::EmaOptions& options);
void describe(KeyTable& keys, engine::EarlyStoppingOptions& options);
void describe(KeyTable& keys, engine::ValidationOptions& options);

}  // namespace trainer
