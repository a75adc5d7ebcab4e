#include "run/session/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/option_error.h"
#include "base/text.h"
#include "datasets/registry.h"
#include "models/registry.h"
#include "nn/layers.h"
#include "nn/sync_batch_norm.h"
#include "run/session/advice.h"
#include "run/session/parameter_names.h"
#include "run/session/split_samples.h"
#include "train/engine/failure_message.h"
#include "train/engine/parts.h"
#include "train/engine/shared_batches.h"
#include "trainer/error.h"
#include "trainer/nn.h"
#include "trainer/random.h"

namespace trainer::session {
namespace {

using Keys = std::map<std::string, std::string>;

// Calls `act`. Its errors about members of options get the place in the experiment file of the key that sets the member.
template <class Act>
auto with_places(const config::Experiment& experiment, const Keys& keys, const Act& act) {
  try {
    return act();
  } catch (const OptionError& error) {
    throw UsageError(fmt::format("{}: {}", experiment.place_of(keys.at(error.member())), error.problem()));
  }
}

const Keys kPlanKeys = {{"batch_size", "dataloader.batch_size"},
                        {"global_batch_size", "dataloader.global_batch_size"},
                        {"accumulation_steps", "training.accumulation_steps"},
                        {"shards", "dataloader.shards"},
                        {"epochs", "training.epochs"},
                        {"steps", "training.steps"}};

engine::PlanOptions plan_options(const config::Experiment& experiment) {
  const auto& loader = experiment.dataloader;
  const auto& training = experiment.training;
  return {.batch_size = loader.batch_size,
          .global_batch_size = loader.global_batch_size,
          .accumulation_steps = training.accumulation_steps,
          .drop_last = loader.drop_last,
          .shards = loader.shards,
          .epochs = training.epochs,
          .steps = training.steps};
}

// Returns the result of `build`. Throws UsageError when memory does not suffice for `what`.
template <class Build>
auto build_in_memory(const std::string& what, const char* remedy, const Build& build) {
  try {
    return build();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (!engine::is_too_large(error)) throw;
    const auto num_bytes = engine::bytes_asked_for(error);
    throw UsageError(fmt::format("out of memory for {}{}; {}", what,
                                 num_bytes ? fmt::format(" (one tensor of it has {})", format_bytes(*num_bytes)) : "", remedy));
  }
}

std::shared_ptr<models::Model> make_model(const config::Experiment& experiment, const at::Generator& dropout_generator,
                                          const engine::Ranks& ranks) {
  const auto seed = mix_seed(static_cast<uint64_t>(experiment.seed), kInitStream);
  // What LibTorch's own layers draw from, if a network of a plug-in has some.
  torch::manual_seed(seed);
  return models::model_registry().make(
      experiment.model.component,
      {.init_generator = at::make_generator<at::CPUGeneratorImpl>(seed),
       .dropout_generator = dropout_generator,
       .norm = experiment.distributed.sync_batch_norm ? nn::sync_batch_norm(ranks.batch_norm) : nn::local_batch_norm()});
}

void place_model(models::Model& model, const device::Placement& placement) {
  using device::ConvolutionChoice;
  model.to(placement.device, placement.dtype);
  // As in Python's Module.to(), but not in LibTorch's, the counters of batches stay integers.
  for (const auto& module : model.modules()) {
    if (!nn::is_libtorch_batch_norm(*module)) continue;
    for (auto& buffer : module->named_buffers(/*recurse=*/false)) {
      if (buffer.key() == "num_batches_tracked") buffer.value().set_data(buffer.value().to(torch::kLong));
    }
  }
  for (auto& parameter : model.parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(placement.memory_format));
  }
  if (placement.fuse) nn::use_fused_norm(model);
  if (placement.convolution == ConvolutionChoice::kWinograd2) nn::use_winograd(model, nn::convolution::Tile::k2);
  if (placement.convolution == ConvolutionChoice::kWinograd4) nn::use_winograd(model, nn::convolution::Tile::k4);
}

// For data sets whose classes were not known when the configuration was checked.
void check_num_classes(const config::Experiment& experiment, const data::DatasetInfo& info) {
  const auto& model = dynamic_cast<const models::ModelOptions&>(*experiment.model.component.options);
  if (info.num_classes == 0 || info.num_classes == model.num_outputs()) return;
  throw DataError(fmt::format("{}: {} has {}, but the data set {} has {}", experiment.place_of("model." + model.outputs_key()),
                              experiment.model.component.name, counted(model.num_outputs(), "output"), experiment.dataset.component.name,
                              counted(info.num_classes, "class", "classes")));
}

engine::DataSource make_source(engine::Samples samples, const std::vector<ComponentConfig>& transforms, int64_t batch_size,
                               const config::Experiment& experiment, const device::Placement& placement, const engine::Ranks& ranks,
                               Logger& logger) {
  const auto& section = experiment.dataset;
  auto pipeline = make_pipeline(transforms, samples.info(), placement);
  data::LoaderOptions options{.batch_size = batch_size,
                              .num_workers = experiment.dataloader.num_workers,
                              .prefetch = experiment.dataloader.prefetch,
                              .pin_memory = placement.pin_memory,
                              .target_dtype = placement.dtype,
                              .seed = augmentation_seed(experiment)};
  if (section.on_error == config::OnError::kSkip) {
    options.report_left_out = [&logger](const std::string& text) { logger.warn("left out (dataset.on_error: skip): {}", text); };
  }
  // From other memory, the driver copies before it returns.
  if (placement.device.is_cuda() && placement.pin_memory) {
    options.make_copy_event = [device = placement.device, activity = ranks.activity] {
      return std::make_unique<engine::DeviceCopyEvent>(device, activity);
    };
  }
  const auto& group = ranks.reading;
  auto of_loader = options;
  if (group) {
    of_loader.prefetch *= group->size();
    // Its batches are copied into the messages that are sent.
    of_loader.pin_memory = false;
    of_loader.make_copy_event = {};
  }
  try {
    auto loader = ranks.reads_data() ? std::make_unique<data::DataLoader>(samples.dataset(), pipeline, of_loader) : nullptr;
    std::unique_ptr<engine::BatchSource> batches;
    if (group) {
      const auto format = data::make_batch_tensors(samples.info(), pipeline, options, torch::kMeta);
      batches = std::make_unique<engine::SharedBatches>(group, section.distribution, format, options, loader.get());
    } else {
      batches = std::make_unique<engine::LocalBatches>(*loader, ranks.world->rank());
    }
    return {std::move(samples), std::move(pipeline), std::move(loader), std::move(batches)};
  } catch (const std::exception& error) {
    if (!engine::is_out_of_memory(error)) throw;
    throw Error(fmt::format("out of memory for {} of batch_size {}; lower dataloader.batch_size or dataloader.prefetch",
                            counted(of_loader.prefetch + 1, "batch", "batches"), options.batch_size));
  }
}

}  // namespace

optim::LrSchedule make_lr_schedule(const config::Experiment& experiment, int64_t total_steps, int64_t steps_per_epoch) {
  const auto& section = experiment.lr_scheduler;
  const std::string key = section.warmup.epochs > 0 ? "lr_scheduler.warmup_epochs" : "lr_scheduler.warmup_steps";
  return with_places(experiment, {{"warmup", key}},
                     [&] { return optim::make_lr_schedule(section.component, section.warmup, total_steps, steps_per_epoch); });
}

int64_t global_batch_size(const config::Experiment& experiment, int world_size) {
  return with_places(experiment, kPlanKeys, [&] { return engine::global_batch_size(plan_options(experiment), world_size); });
}

engine::Plan make_plan(const config::Experiment& experiment, int64_t samples_per_epoch, int world_size) {
  return with_places(experiment, kPlanKeys, [&] { return engine::make_plan(plan_options(experiment), samples_per_epoch, world_size); });
}

std::shared_ptr<distributed::ProcessGroup> make_reading_group(const config::Experiment& experiment, distributed::ProcessGroups& groups) {
  const auto& section = experiment.dataset;
  return with_places(experiment, {{"group_size", "dataset.distribution_group_size"}},
                     [&] { return engine::make_reading_group(section.distribution, section.distribution_group_size.value, groups); });
}

engine::TrainerOptions trainer_options(const config::Experiment& experiment) {
  return {.seed = static_cast<uint64_t>(experiment.seed),
          .max_grad_norm = experiment.training.max_grad_norm,
          .on_non_finite = experiment.training.on_non_finite,
          .early_stopping = experiment.training.early_stopping,
          .validation = experiment.validation,
          .monitor = experiment.checkpoint.best,
          .checkpoint_every_epochs = experiment.checkpoint.every_epochs,
          .checkpoint_every_steps = experiment.checkpoint.every_steps,
          .log_every_steps = experiment.logging.every_steps,
          .straggler_ratio = experiment.distributed.straggler_ratio,
          .advise_on_data = [experiment](const auto& epoch, int64_t number) { return advice_on_data(epoch, number, experiment); }};
}

device::PlacementOptions placement_options(const config::Experiment& experiment) {
  const auto& runtime = experiment.runtime;
  return {.device = runtime.device,
          .dtype = runtime.dtype,
          .autocast = experiment.amp.enabled.value,
          .autocast_dtype =
              experiment.amp.dtype == config::AmpDtype::kFloat16 ? device::AutocastType::kFloat16 : device::AutocastType::kBfloat16,
          .num_threads = runtime.threads.value,
          .channels_last = runtime.channels_last.value,
          .pin_memory = experiment.dataloader.pin_memory.value,
          .allow_tf32 = runtime.allow_tf32.value,
          .convolution = runtime.convolution,
          .fuse = runtime.fuse == config::FuseChoice::kAuto,
          .deterministic = runtime.deterministic,
          .cudnn_benchmark = runtime.cudnn_benchmark};
}

namespace {

engine::Network build_network_unguarded(const config::Experiment& experiment, const device::Placement& placement,
                                        const engine::Ranks& ranks) {
  engine::Network network;
  network.placement = placement;
  network.dropout_generator = at::globalContext().defaultGenerator(placement.device).clone();
  network.model = make_model(experiment, network.dropout_generator, ranks);
  network.task = task::task_registry().make(experiment.task.component, nn::loss_registry().make(experiment.loss.component));
  if (!experiment.runtime.channels_last.value && !network.model->prefers_channels_last()) {
    network.placement.memory_format = torch::MemoryFormat::Contiguous;
    network.placement.convolution = device::ConvolutionChoice::kDirect;
  }
  // Those of LibTorch in a network of a plug-in.
  if (experiment.distributed.sync_batch_norm) nn::convert_sync_batch_norm(*network.model, ranks.batch_norm);
  freeze(experiment, *network.model);
  place_model(*network.model, network.placement);
  network.optimizer =
      optim::make_optimizer(experiment.optimizer.component,
                            optim::group_parameters(*network.model, experiment.optimizer.decay_norm_and_bias, experiment.optimizer.groups),
                            experiment.optimizer.skip_zero_grads);
  if (network.placement.autocast_dtype == torch::kFloat16) network.grad_scaler.emplace(experiment.amp.scaler, placement.device);
  return network;
}

}  // namespace

engine::Network build_network(const config::Experiment& experiment, const device::Placement& placement, const engine::Ranks& ranks) {
  return build_in_memory(fmt::format("the model {} and its optimizer", experiment.model.component.name),
                         "choose smaller sizes in the section model, or dataset.num_classes",
                         [&] { return build_network_unguarded(experiment, placement, ranks); });
}

namespace {

bool holds_out(const config::Experiment& experiment) { return experiment.dataset.validation_split.value.value_or(0) > 0; }

// What has a label that is not one of the classes is a class of its own; it is refused when it is read.
std::vector<int64_t> labels_of(const data::Dataset& files) {
  const auto num_classes = files.info().num_classes;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < files.size(); ++i) {
    const auto label = files.label(i);
    labels.push_back(data::refusal_of_label(label, num_classes).empty() ? label : num_classes);
  }
  return labels;
}

// Of the training files: the indices that are held out for validation, and the others.
SampleSplit split_training_files(const config::Experiment& experiment, const data::Dataset& files, Logger& logger) {
  const auto size = files.size();
  const double part = experiment.dataset.validation_split.value.value_or(0);
  const auto count = static_cast<int64_t>(static_cast<double>(size) * part + 0.5);
  const auto seed = static_cast<uint64_t>(experiment.seed);
  const bool by_class = experiment.dataset.stratify && files.info().has_labels();
  auto indices = by_class ? split_by_class(labels_of(files), count, seed) : split_samples(indices_up_to(size), count, seed);
  const auto& [held_out, rest] = indices;
  if (held_out.empty() || count == size) {
    const bool are_single = held_out.empty() && count > 0 && count < size;
    throw UsageError(fmt::format("{}: {} of {} images leaves no image on one side{}", experiment.place_of("dataset.validation_split"), part,
                                 size,
                                 are_single ? ", because no class has more than one and each keeps one for the training; set "
                                              "dataset.stratify: false to hold out images whatever their class"
                                            : "; choose another fraction"));
  }
  logger.info("{} of the {} training images are held out for validation (dataset.validation_split: {})", held_out.size(), size, part);
  return indices;
}

// Trains and validates on `count` of these training samples, chosen by the seed.
std::vector<int64_t> choose_overfit(const config::Experiment& experiment, int64_t count, std::vector<int64_t> samples) {
  count = std::min(count, static_cast<int64_t>(samples.size()));
  return split_samples(std::move(samples), count, static_cast<uint64_t>(experiment.seed)).first;
}

std::shared_ptr<const data::Dataset> open_files(const config::Experiment& experiment, const data::DatasetFactory& dataset,
                                                data::Split split, Logger& logger) {
  auto files = dataset.open(split, logger);
  if (files->size() > 0) return files;
  throw DataError(fmt::format("{}: {} has no {} samples; give it some, or use another data set", experiment.place_of("dataset.name"),
                              experiment.dataset.component.name, split == data::Split::kTrain ? "training" : "validation"));
}

OpenedSamples open_samples_unguarded(const config::Experiment& experiment, const data::DatasetFactory& dataset, Logger& logger,
                                     const std::optional<int64_t>& num_overfit) {
  const auto files = open_files(experiment, dataset, data::Split::kTrain, logger);
  check_num_classes(experiment, files->info());
  std::vector<int64_t> held_out, rest;
  if (holds_out(experiment)) std::tie(held_out, rest) = split_training_files(experiment, *files, logger);
  if (num_overfit) rest = choose_overfit(experiment, *num_overfit, holds_out(experiment) ? rest : indices_up_to(files->size()));
  OpenedSamples samples{.train = holds_out(experiment) || num_overfit ? engine::Samples(files, rest) : engine::Samples(files)};
  if (experiment.validation.is_off()) return samples;
  if (num_overfit) {
    samples.validation = samples.train;
  } else if (holds_out(experiment)) {
    samples.validation.emplace(files, held_out);
  } else {
    samples.validation.emplace(open_files(experiment, dataset, data::Split::kValidation, logger));
  }
  return samples;
}

engine::Samples open_split_unguarded(const config::Experiment& experiment, const data::DatasetFactory& dataset, data::Split split,
                                     Logger& logger) {
  const auto files = open_files(experiment, dataset, holds_out(experiment) ? data::Split::kTrain : split, logger);
  check_num_classes(experiment, files->info());
  if (!holds_out(experiment)) return engine::Samples(files);
  const auto [held_out, rest] = split_training_files(experiment, *files, logger);
  return {files, split == data::Split::kTrain ? rest : held_out};
}

}  // namespace

std::optional<int64_t> num_overfit_samples(const config::Experiment& experiment, int world_size) {
  const auto& num_batches = experiment.training.overfit_batches;
  if (!num_batches) return std::nullopt;
  return *num_batches * global_batch_size(experiment, world_size);
}

OpenedSamples open_samples(const config::Experiment& experiment, Logger& logger) {
  return open_samples(experiment, datasets::dataset_registry().make(experiment.dataset.component), logger);
}

OpenedSamples open_samples(const config::Experiment& experiment, const data::DatasetFactory& dataset, Logger& logger,
                           const std::optional<int64_t>& num_overfit) {
  return build_in_memory("the list of samples of " + experiment.dataset.component.name, "choose a smaller data set",
                         [&] { return open_samples_unguarded(experiment, dataset, logger, num_overfit); });
}

engine::Samples open_split(const config::Experiment& experiment, const data::DatasetFactory& dataset, data::Split split, Logger& logger) {
  return build_in_memory("the list of samples of " + experiment.dataset.component.name, "choose a smaller data set",
                         [&] { return open_split_unguarded(experiment, dataset, split, logger); });
}

data::Pipeline make_pipeline(const std::vector<ComponentConfig>& transforms, const data::DatasetInfo& info,
                             const device::Placement& placement) {
  const bool channels_last = info.shape.size() == 3 && placement.memory_format == torch::MemoryFormat::ChannelsLast;
  return {transforms, info, {placement.input_dtype, channels_last}};
}

std::unique_ptr<data::Sampler> make_sampler(const config::Experiment& experiment, const engine::Samples& train) {
  return data::sampler_registry().make(experiment.dataloader.sampler, {.dataset = train.dataset(),
                                                                       .files = train.files(),
                                                                       .seed = static_cast<uint64_t>(experiment.seed),
                                                                       .place_of = [&](const std::string& key) {
                                                                         return experiment.place_of("dataloader.sampler." + key);
                                                                       }});
}

TrainingSamples make_training_samples(const config::Experiment& experiment, const engine::Ranks& ranks, OpenedSamples samples) {
  auto sampler = make_sampler(experiment, samples.train);
  const auto samples_per_epoch = sampler->num_samples();
  const data::ShardOptions shards{.rank = ranks.world->rank(), .world_size = ranks.world->size(), .shards = experiment.dataloader.shards};
  return {{std::move(samples)}, std::make_unique<data::ShardedSampler>(std::move(sampler), shards), samples_per_epoch};
}

engine::Data make_data(const config::Experiment& experiment, const device::Placement& placement, const engine::Ranks& ranks, Logger& logger,
                       TrainingSamples samples) {
  const auto plan = make_plan(experiment, samples.samples_per_epoch, ranks.world->size());
  auto lr_schedule = make_lr_schedule(experiment, plan.total_steps, plan.steps_per_epoch);
  auto train = make_source(std::move(samples.train), experiment.dataset.train_transforms,
                           std::min(plan.batch_size, samples.samples_per_epoch), experiment, placement, ranks, logger);
  std::optional<engine::DataSource> validation;
  if (samples.validation) validation = make_validation_source(experiment, placement, ranks, logger, std::move(*samples.validation));
  auto mixer = experiment.dataset.batch_transforms.empty()
                   ? nullptr
                   : std::make_unique<data::BatchMixer>(experiment.dataset.batch_transforms, train.samples.info().num_classes,
                                                        mix_seed(static_cast<uint64_t>(experiment.seed), kBatchMixStream));
  return {.train = std::move(train),
          .validation = std::move(validation),
          .sampler = std::move(samples.sampler),
          .plan = plan,
          .batch_mixer = std::move(mixer),
          .lr_schedule = std::move(lr_schedule)};
}

engine::DataSource make_validation_source(const config::Experiment& experiment, const device::Placement& placement,
                                          const engine::Ranks& ranks, Logger& logger, engine::Samples samples) {
  const auto batch_size = std::min(experiment.validation.batch_size, samples.size());
  return make_source(std::move(samples), experiment.dataset.validation_transforms, batch_size, experiment, placement, ranks, logger);
}

}  // namespace trainer::session
