#include "run/session/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/crash.h"
#include "base/file.h"
#include "base/text.h"
#include "base/url.h"
#include "checkpoint/store.h"
#include "distributed/packed_tensors.h"
#include "inference/weights_by_name.h"
#include "run/session/advice.h"
#include "run/session/build.h"
#include "run/session/cached_features.h"
#include "run/session/shared_samples.h"
#include "run/session/split_samples.h"
#include "run/session/version.h"
#include "run/session/weights.h"
#include "train/engine/histograms.h"
#include "trainer/error.h"

namespace trainer::session {
namespace {

constexpr const char* kFinished = "finished";

std::string environment_json(const std::vector<std::string>& command_line, const device::Placement& placement,
                             const std::vector<distributed::RankInfo>& ranks, const std::string& validation_samples) {
  auto entries = nlohmann::ordered_json::array();
  for (const auto& rank : ranks) {
    entries.push_back({{"host", rank.host},
                       {"process_id", rank.process_id},
                       {"device", rank.device},
                       {"pci_bus_id", rank.pci_bus_id},
                       {"threads", rank.num_threads}});
  }
  auto arguments = nlohmann::ordered_json::array();
  for (const auto& argument : command_line) arguments.push_back(without_secrets(argument));
  nlohmann::ordered_json environment = {
      {"command_line", std::move(arguments)},
      {"working_directory", std::filesystem::current_path().string()},
      {"trainer_version", trainer_version()},
      {"git_revision", git_revision()},
      {"libtorch_version", libtorch_version()},
      {"compiler", compiler_version()},
      {"convolution", spelling_of(placement.convolution, config::kConvolutionChoices)},
      {"fused_operators", placement.fuse},
      {"world_size", ranks.size()},
      {"ranks", std::move(entries)},
  };
  if (!validation_samples.empty()) environment["validation_samples"] = validation_samples;
  // File names need not be UTF-8, so invalid bytes are replaced.
  return environment.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace

Session::Session(RankContext& context, SessionOptions options)
    : context_(context), options_(std::move(options)), start_{.checkpoint = std::move(options_.checkpoint)} {
  try {
    build();
  } catch (const Error& error) {
    const bool is_refused = error.exit_code() == ExitCode::kUsage || error.exit_code() == ExitCode::kCheckpoint;
    if (directory_ && !has_begun_ && is_refused) directory_->discard();
    throw;
  }
}

void Session::build() {
  auto& barrier = context_.barrier();
  auto network = barrier.make_on_all_ranks([&] { return build_network(context_.experiment(), context_.placement(), context_.ranks()); });
  const auto start = barrier.on_rank0([&] { return open_run_directory(); });
  if (start == kFinished) throw FinishedRun();
  resume_from_ = start;
  barrier.on_all_ranks([&] { open_log(); });
  context_.begin_run(directory_ ? directory_->checkpoint_folder() : "");
  auto images = open_data(network);
  const auto sample_shape = images.train.pipeline.output_shape();
  barrier.on_all_ranks([&] { check_batch_norm_counts(context_.experiment(), network, images.plan, sample_shape); });
  warn_of_plan(images.plan);
  if (directory_ && context_.ranks().reads_data()) warn_of_images(images.train.samples.dataset(), context_.logger());
  warn_of_autocast(network, sample_shape);
  report_frozen(network);
  barrier.on_all_ranks([&] { init_weights(network, images); });
  const auto class_names = images.train.samples.info().class_names;
  const auto target_names = images.train.samples.info().target_names;
  const auto split =
      directory_ && context_.experiment().dataset.split ? split_table(context_.experiment(), images.train.samples.files()) : "";
  if (!split.empty()) split_digest_ = digest_of(split);
  if (directory_ && images.validation) validation_samples_ = summary_of(images.validation->samples.dataset());
  barrier.on_rank0([&] {
    sampler_digest_ = sampler_digest(context_.experiment());
    if (start_.checkpoint) {
      check_class_names(*start_.checkpoint, class_names);
      check_target_names(*start_.checkpoint, target_names);
      check_split_digest(*start_.checkpoint, split_digest_);
      check_sampler_digest(*start_.checkpoint, context_.experiment(), sampler_digest_);
      if (network.placement.device.is_cpu()) warn_of_other_threads(*start_.checkpoint, context_.rank_infos(), context_.logger());
    }
    return std::string();
  });
  auto data = take_features(network, std::move(images));
  barrier.on_rank0([&] {
    begin_run_directory(network.placement, class_names, split);
    return std::string();
  });
  const auto& experiment = context_.experiment();
  auto lr_schedule =
      barrier.make_on_all_ranks([&] { return make_lr_schedule(experiment, data.plan.total_steps, data.plan.steps_per_epoch); });
  parts_ = std::make_unique<engine::Parts>(std::move(network), std::move(data), std::move(lr_schedule), context_.ranks(),
                                           experiment.distributed.data_parallel, experiment.training.ema);
  barrier.on_all_ranks([&] { open_saver(); });
}

std::string Session::open_run_directory() {
  if (!options_.run_directory.empty()) {
    const FileAccess access("opening the run directory", options_.run_directory);
    auto& logger = context_.logger();
    directory_ = std::make_unique<run::RunDirectory>(options_.run_directory, FileLock::Options{.logger = &logger});
    if (const auto& holder = directory_->earlier_holder(); !holder.empty()) {
      logger.warn("the run directory {} was locked by {}; this process takes over the lock", directory_->path().string(), holder);
    }
    start_ = choose_run_start(*directory_, {options_.resume, context_.values(), context_.experiment().training}, logger);
    if (start_.decision == ResumeDecision::kFinished) return kFinished;
  }
  return start_.checkpoint ? start_.checkpoint->file.string() : "";
}

void Session::begin_run_directory(const device::Placement& placement, const std::vector<std::string>& class_names,
                                  const std::string& split) {
  if (!directory_) return;
  has_begun_ = true;
  directory_->begin();
  discard_later_files(*directory_, start_);
  write_file_atomically(directory_->config_file(), context_.config_text());
  write_file_atomically(directory_->environment_file(),
                        environment_json(options_.command_line, placement, context_.rank_infos(), validation_samples_));
  if (!class_names.empty()) write_file_atomically(directory_->class_names_file(), fmt::format("{}\n", fmt::join(class_names, "\n")));
  if (!split.empty()) write_file_atomically(directory_->split_file(), split);
}

void Session::open_log() {
  const auto& path = options_.run_directory;
  if (path.empty()) return;
  auto& logger = context_.logger();
  const auto log_file = directory_ ? directory_->log_file() : run::rank_log_file(path, context_.rank());
  if (directory_ || context_.experiment().logging.all_ranks) {
    const FileAccess access("opening the log", log_file);
    std::filesystem::create_directories(path);
    add_file(logger, log_file);
  }
  set_crash_file(log_file);
  if (!context_.ranks_source().empty()) logger.debug("{}", context_.ranks_source());
  logger.info("{}: {}", context_.experiment().experiment, device::to_string(context_.placement()));
  if (!context_.threads_source().empty()) logger.info("{}", context_.threads_source());
  const auto& ranks = context_.rank_infos();
  for (size_t rank = 0; ranks.size() > 1 && rank < ranks.size(); ++rank) {
    const auto& info = ranks[rank];
    const auto gpu = info.pci_bus_id.empty() ? "" : fmt::format(" ({})", info.pci_bus_id);
    logger.info("rank {}  {}  {}{}  {}", rank, info.host, info.device, gpu, counted(info.num_threads, "thread"));
  }
  if (!directory_) return;
  for (const auto& warning : context_.experiment().warnings) logger.warn("{}", warning);
}

data::DatasetFactory Session::place_dataset() {
  const auto& section = context_.experiment().dataset;
  auto dataset = datasets::dataset_registry().make(section.component);
  if (section.stage_to.empty()) return dataset;
  const bool is_first_of_host = context_.local_rank() == 0;
  const auto folder = dataset.locate(context_.logger());
  const auto files = dataset.list_files ? dataset.list_files() : std::vector<std::filesystem::path>{};
  staged_.emplace(folder, files, section.stage_to, /*is_current=*/!is_first_of_host, context_.logger());
  return dataset.in_folder(staged_->path());
}

engine::Data Session::open_data(engine::Network& network) {
  const auto& experiment = context_.experiment();
  const auto& ranks = context_.ranks();
  auto samples = open_together(context_, [&] {
    auto opened = open_samples(experiment, place_dataset(), context_.logger(), num_overfit_samples(experiment, ranks.world->size()));
    auto sampler = make_sampler(experiment, opened.train);
    auto training = engine::make_training_samples(std::move(opened), std::move(sampler), experiment.dataloader.shards, ranks);
    if (network.task->needs_target_summary()) training.targets = data::summarize_targets(training.opened.train.dataset());
    return training;
  });
  if (samples.targets) {
    const auto text = network.task->set_target_summary(samples.targets);
    if (directory_ && !text.empty()) context_.logger().info("{}", text);
  }
  return context_.barrier().make_on_all_ranks(
      [&] { return make_data(experiment, network.placement, ranks, context_.logger(), std::move(samples)); });
}

void Session::warn_of_plan(const engine::Plan& plan) const {
  if (!directory_) return;
  const auto& experiment = context_.experiment();
  if (experiment.training.overfit_batches) {
    context_.logger().warn("{}: training and validation use only {}", experiment.place_of("training.overfit_batches"),
                           counted(plan.samples_per_epoch, "image"));
  }
  if (plan.accumulation_steps <= plan.batches_per_epoch) return;
  context_.logger().warn("{}: an epoch has fewer than {} micro-steps, so each epoch is one step of {}",
                         experiment.place_of("training.accumulation_steps"), plan.accumulation_steps,
                         counted(plan.batches_per_epoch, "micro-step"));
}

void Session::warn_of_autocast(engine::Network& network, const std::vector<int64_t>& sample_shape) const {
  if (!directory_) return;
  const auto warning = warning_of_autocast(context_.experiment(), network, sample_shape);
  if (!warning.empty()) context_.logger().warn("{}", warning);
}

void Session::report_frozen(const engine::Network& network) const {
  const auto& experiment = context_.experiment();
  const auto& optimizer = *network.optimizer;
  if (directory_ && experiment.optimizer.layer_decay) {
    double smallest = 1;
    for (size_t i = 0; i < optimizer.num_groups(); ++i) smallest = std::min(smallest, optimizer.lr_factor(i));
    if (smallest < 1)
      context_.logger().info("the learning rate of the first layers is {:.3g} times optimizer.lr (optimizer.layer_decay)", smallest);
  }
  if (!directory_ || experiment.model.freeze.empty()) return;
  int64_t num_trained = 0;
  int64_t num_all = 0;
  for (const auto& parameter : network.model->parameters()) {
    num_all += parameter.numel();
    if (parameter.requires_grad()) num_trained += parameter.numel();
  }
  const auto& after = experiment.training.unfreeze_after;
  context_.logger().info("{} of {} are trained, the others are frozen (model.freeze){}", num_trained, counted(num_all, "parameter"),
                         after ? fmt::format(" for {} (training.unfreeze_after)", counted(*after, "epoch")) : "");
}

// Only rank 0 loads weights; DataParallel sends them to all ranks.
void Session::init_weights(engine::Network& network, const engine::Data& data) const {
  const auto& section = context_.experiment().model;
  auto& model = *network.model;
  if (context_.rank() != 0 || !resume_from_.empty()) return;
  const auto& train = data.train.samples;
  inference::fit_model(model, train.dataset(),
                       engine::make_pipeline(context_.experiment().dataset.validation_transforms, train.info(), network.placement));
  if (!section.weights.empty()) {
    const auto& name = section.component.name;
    const auto file = fetch_weights(weights_source(name, section.weights, section.weights_mirror), context_.logger());
    context_.logger().info("{}", load_published_weights(file, name, model, train.info().class_names).text);
  }
  if (section.init_from.empty()) return;
  const auto report = inference::init_model(section.init_from, section.init_strict, model, train.info().class_names);
  context_.logger().info("{}", report.text);
  if (!report.warning.empty()) context_.logger().warn("{}: {}", context_.experiment().place_of("model.init_from"), report.warning);
}

engine::Data Session::take_features(engine::Network& network, engine::Data images) {
  if (!context_.experiment().training.cache_features) return images;
  context_.barrier().on_all_ranks([&] {
    if (start_.checkpoint) inference::load_weights(start_.checkpoint->tree, start_.checkpoint->file.string(), *network.model);
  });
  const auto& world = *context_.ranks().world;
  if (world.size() > 1) {
    auto tensors = network.model->parameters();
    for (const auto& buffer : network.model->buffers()) tensors.push_back(buffer);
    const distributed::PackedTensors weights(std::move(tensors));
    const auto bytes = weights.read();
    world.broadcast(bytes);
    weights.write(bytes);
  }
  return cache_features(context_, network, std::move(images));
}

void Session::open_saver() {
  const auto folder = directory_ ? directory_->checkpoint_folder() : options_.checkpoint_folder;
  if (context_.rank() != 0 || folder.empty()) return;
  const FileAccess access("opening the folder", folder);
  checkpoint::Store store(folder, context_.experiment().checkpoint.keep_last, directory_ ? &directory_->written_files() : nullptr);
  if (store.link_error()) {
    context_.logger().warn(
        "{}: symbolic links cannot be created there ({}); last.pt and best.pt will be hard links or copies of checkpoints", folder.string(),
        store.link_error().message());
  }
  check_sizes(store, folder);
  if (directory_ && start_.checkpoint) bring_best(store);
  saver_.emplace(std::move(store), context_.placement().pin_memory);
}

// Without this check, the first checkpoint could fail after hours.
void Session::check_sizes(const checkpoint::Store& store, const std::filesystem::path& folder) const {
  if (!store.largest_file()) return;
  uint64_t network = 0;
  for (const auto& tensor : parts_->network.model->parameters()) network += tensor.nbytes();
  const auto least = parts_->ema ? 2 * network : network;
  // Optimizers keep up to two numbers for each parameter.
  if (least + 2 * network <= *store.largest_file()) return;
  const auto text = fmt::format(
      "checkpoints need {} to {}, but a file in {} may have {} (ulimit -f, or a file system such as FAT32); raise the limit, or choose a "
      "--run-dir on another file system",
      format_bytes(least), format_bytes(least + 2 * network), folder.string(), format_bytes(*store.largest_file()));
  if (least > *store.largest_file()) throw CheckpointError(text);
  context_.logger().warn("{}", text);
}

// A run that resumes from a checkpoint of another folder copies the best checkpoint of that folder, so that best.pt belongs to the best
// validation that the run reports.
void Session::bring_best(const checkpoint::Store& store) const {
  auto& logger = context_.logger();
  const auto& file = start_.checkpoint->file;
  auto best = file;
  // The other run may remove its files meanwhile; this run can continue without them.
  try {
    std::error_code is_gone;
    if (std::filesystem::equivalent(folder_of(*start_.checkpoint), directory_->checkpoint_folder(), is_gone)) return;
    best = find_best(*start_.checkpoint, logger);
    if (best.empty()) return;
    if (store.set_first_best(best)) logger.info("best.pt is a copy of {} until validation improves", best.string());
  } catch (const std::filesystem::filesystem_error& error) {
    logger.warn("there will be no best.pt until validation improves, because {} cannot be copied: {}", best.string(),
                error.code().message());
  }
}

engine::RunCallbacks Session::run_callbacks() {
  engine::RunCallbacks callbacks;
  callbacks.advise_on_data = [this](const auto& epoch, int64_t number) { return advice_on_data(epoch, number, context_.experiment()); };
  callbacks.checkpoints.saver = saver_ ? &*saver_ : nullptr;
  if (!directory_) return callbacks;
  callbacks.checkpoints.complete = [this](state::Dict& tree) {
    directory_->check_lock();
    state::Dict sizes;
    for (const auto& [name, size] : directory_->event_files()) sizes.add(name, size);
    tree.add("event_files", std::move(sizes));
    tree.add("config", context_.config_text());
    if (!sampler_digest_.empty()) tree.add("sampler_digest", sampler_digest_);
    if (!split_digest_.empty()) tree.add("split_digest", split_digest_);
    std::vector<int64_t> threads;
    for (const auto& rank : context_.rank_infos()) threads.push_back(rank.num_threads);
    tree.add("num_threads", state::List(threads.begin(), threads.end()));
    tree.add("trainer_version", trainer_version());
  };
  callbacks.non_finite_step = [this](const engine::StepRecord& record) {
    directory_->check_lock();
    const auto folder = directory_->non_finite_folder() / fmt::format("step_{}", record.step);
    for (const auto& file : engine::step_files(folder)) directory_->written_files().add(file);
    engine::write_step(folder, record, *parts_->network.model, context_.config_text());
    return folder;
  };
  return callbacks;
}

bool Session::train(reporting::Sink& reporter, const std::function<bool()>& should_stop, const std::vector<engine::TrainingHook*>& hooks) {
  engine::TrainingLoop loop(loop_options(context_.experiment()), *parts_, reporter, should_stop, run_callbacks());
  for (auto* hook : hooks) loop.add_hook(*hook);
  std::optional<engine::Histograms> histograms;
  const auto& every_epochs = context_.experiment().logging.histograms_every_epochs;
  if (every_epochs && context_.rank() == 0) {
    loop.add_hook(histograms.emplace(*parts_, loop.part(), *every_epochs, reporter));
  }
  if (is_resumed()) {
    const auto checkpoint = broadcast(resume_from_, std::move(start_.checkpoint), *context_.ranks().world);
    context_.barrier().on_all_ranks([&] { loop.resume(checkpoint.tree, checkpoint.file.string()); });
  }
  try {
    const bool is_done = loop.run();
    if (is_done && staged_) staged_->remove(context_.logger());
    return is_done;
  } catch (const std::exception& error) {
    // On a GPU, end_failed_gpu() ends the process, so the checkpoint that is being written must be finished first; it is valid although
    // training has failed since.
    if (saver_ && context_.placement().cuda != nullptr) saver_->finish();
    context_.end_failed_gpu(error);
    throw;
  }
}

}  // namespace trainer::session
