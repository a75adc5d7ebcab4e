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
#include "run/recipe/advice.h"
#include "run/samples/shared_samples.h"
#include "run/samples/split_samples.h"
#include "run/version.h"
#include "train/engine/histograms.h"
#include "train/task/task.h"
#include "trainer/checkpoint.h"
#include "trainer/error.h"

namespace trainer::session {
namespace {

constexpr const char* kFinished = "finished";

std::string environment_json(const std::vector<std::string>& command_line, const device::Placement& placement,
                             const std::vector<distributed::RankInfo>& ranks, const std::string& training_samples,
                             const std::string& validation_samples) {
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
      {"trainer_version", run::trainer_version()},
      {"git_revision", run::git_revision()},
      {"libtorch_version", run::libtorch_version()},
      {"compiler", run::compiler_version()},
      {"convolution", spelling_of(placement.convolution, config::kConvolutionChoices)},
      {"fused_operators", placement.fuse},
      {"world_size", ranks.size()},
      {"ranks", std::move(entries)},
      {"training_samples", training_samples},
  };
  if (!validation_samples.empty()) environment["validation_samples"] = validation_samples;
  // File names need not be UTF-8, so invalid bytes are replaced.
  return environment.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace

Session::Session(run::Rank& rank, recipe::Recipe& recipe) : rank_(rank), recipe_(recipe) {
  try {
    build();
  } catch (const Error& error) {
    const bool is_refused = error.exit_code() == ExitCode::kUsage || error.exit_code() == ExitCode::kCheckpoint;
    if (directory_ && !has_begun_ && is_refused) directory_->discard();
    throw;
  }
}

void Session::build() {
  auto& barrier = rank_.barrier;
  auto network = barrier.make_on_all_ranks([&] { return recipe::make_network(recipe_, rank_.placement, rank_.ranks); });
  const auto start = barrier.on_rank0([&] { return open_run_directory(); });
  if (start == kFinished) throw FinishedRun();
  resume_from_ = start;
  barrier.on_all_ranks([&] { open_log(); });
  if (recipe_.on_log) recipe_.on_log(directory_ ? directory_->checkpoint_folder() : "");
  auto images = open_data(network);
  barrier.on_all_ranks([&] {
    recipe::check_fit(recipe_, network, images);
    recipe::check_batch_norm_counts(recipe_, network, images.plan, images.train.pipeline.output_shape());
  });
  if (directory_) warn(network, images);
  barrier.on_all_ranks([&] { init_weights(network, images.train.samples); });
  const auto info = images.train.samples.info();
  std::string split;
  if (const auto& record = recipe_.record; directory_ && record && record->experiment->dataset.split) {
    split = samples::split_table(*record->experiment, images.train.samples.files());
  }
  if (directory_) training_samples_ = samples::summary_of(images.train.samples.dataset());
  if (directory_ && images.validation) validation_samples_ = samples::summary_of(images.validation->samples.dataset());
  barrier.on_rank0([&] {
    digests_ = data_digests(recipe_.sampler, split);
    if (!start_.checkpoint) return std::string();
    check_data(*start_.checkpoint, info, digests_);
    if (network.placement.device.is_cpu()) warn_of_other_threads(*start_.checkpoint, rank_.ranks.infos, *rank_.logger);
    return std::string();
  });
  auto data = take_features(network, std::move(images));
  auto lr_schedule = barrier.make_on_all_ranks([&] { return recipe::make_lr_schedule(recipe_, data.plan); });
  barrier.on_rank0([&] {
    begin_run_directory(network.placement, info, split);
    return std::string();
  });
  parts_ = std::make_unique<engine::Parts>(std::move(network), std::move(data), std::move(lr_schedule), rank_.ranks,
                                           recipe_.options.data_parallel, recipe_.options.ema);
  barrier.on_all_ranks([&] { open_saver(); });
}

std::string Session::open_run_directory() {
  const auto& path = recipe_.options.run_directory;
  if (path.empty()) return "";
  const FileAccess access("opening the run directory", path);
  auto& logger = *rank_.logger;
  directory_ = std::make_unique<run::RunDirectory>(path, FileLock::Options{.logger = &logger});
  if (const auto& holder = directory_->earlier_holder(); !holder.empty()) {
    logger.warn("the run directory {} was locked by {}; this process takes over the lock", directory_->path().string(), holder);
  }
  start_ = choose_run_start(*directory_, recipe_, logger);
  if (start_.decision == ResumeDecision::kFinished) return kFinished;
  return start_.checkpoint ? start_.checkpoint->file.string() : "";
}

void Session::begin_run_directory(const device::Placement& placement, const data::DatasetInfo& info, const std::string& split) {
  if (!directory_) return;
  has_begun_ = true;
  directory_->begin();
  discard_later_files(*directory_, start_);
  if (recipe_.record) write_file_atomically(directory_->config_file(), recipe_.record->text);
  const auto command_line = recipe_.record ? recipe_.record->command_line : std::vector<std::string>();
  write_file_atomically(directory_->environment_file(),
                        environment_json(command_line, placement, rank_.ranks.infos, training_samples_, validation_samples_));
  if (!info.class_names.empty()) {
    write_file_atomically(directory_->class_names_file(), fmt::format("{}\n", fmt::join(info.class_names, "\n")));
  }
  if (!split.empty()) write_file_atomically(directory_->split_file(), split);
}

void Session::open_log() {
  const auto& path = recipe_.options.run_directory;
  if (path.empty()) return;
  auto& logger = *rank_.logger;
  const auto& record = recipe_.record;
  const auto log_file = directory_ ? directory_->log_file() : run::rank_log_file(path, rank_.number());
  if (directory_ || (record && record->experiment->logging.all_ranks)) {
    const FileAccess access("opening the log", log_file);
    std::filesystem::create_directories(path);
    add_file(logger, log_file);
  }
  set_crash_file(log_file);
  if (record && !record->ranks_source.empty()) logger.debug("{}", record->ranks_source);
  logger.info("{}{}", record ? record->experiment->experiment + ": " : "", device::to_string(rank_.placement));
  if (record && !record->threads_source.empty()) logger.info("{}", record->threads_source);
  const auto& ranks = rank_.ranks.infos;
  for (size_t rank = 0; ranks.size() > 1 && rank < ranks.size(); ++rank) {
    const auto& info = ranks[rank];
    const auto gpu = info.pci_bus_id.empty() ? "" : fmt::format(" ({})", info.pci_bus_id);
    logger.info("rank {}  {}  {}{}  {}", rank, info.host, info.device, gpu, counted(info.num_threads, "thread"));
  }
  if (!directory_ || !record) return;
  for (const auto& warning : record->experiment->warnings) logger.warn("{}", warning);
}

engine::Data Session::open_data(engine::Network& network) {
  const auto& ranks = rank_.ranks;
  auto samples = samples::open_together(rank_, [&] {
    auto opened = recipe_.open_samples();
    auto sampler = recipe::make_sampler(recipe_, opened.train);
    auto training = engine::make_training_samples(std::move(opened), std::move(sampler), recipe_.options.plan.shards, ranks);
    if (network.task->needs_target_summary()) training.targets = data::summarize_targets(training.opened.train.dataset());
    return training;
  });
  if (samples.targets) {
    const auto text = network.task->set_target_summary(samples.targets);
    if (directory_ && !text.empty()) rank_.logger->info("{}", text);
  }
  return rank_.barrier.make_on_all_ranks([&] { return recipe::make_data(recipe_, network.placement, ranks, std::move(samples)); });
}

void Session::warn(const engine::Network& network, const engine::Data& images) const {
  auto& logger = *rank_.logger;
  const auto& plan = images.plan;
  if (plan.accumulation_steps > plan.batches_per_epoch) {
    logger.warn("{}: an epoch has fewer than {} micro-steps, so each epoch is one step of {}", recipe_.place("training.accumulation_steps"),
                plan.accumulation_steps, counted(plan.batches_per_epoch, "micro-step"));
  }
  if (rank_.ranks.reads_data()) recipe::warn_of_images(images.train.samples.dataset(), logger);
  for (const auto& item : plan.size_schedule) {
    logger.info("training images are scaled down to {} pixels until {} of {} have ended (dataset.size_schedule)", item.size,
                plan.num_epochs_until(item), counted(*plan.num_epochs, "epoch"));
  }
  report_frozen(network);
}

void Session::report_frozen(const engine::Network& network) const {
  const auto& options = recipe_.options.parameters;
  const auto& optimizer = *network.optimizer;
  double smallest = 1;
  for (size_t i = 0; options.layer_decay < 1 && i < optimizer.num_groups(); ++i) smallest = std::min(smallest, optimizer.lr_factor(i));
  if (smallest < 1) {
    rank_.logger->info("the learning rate of the first layers is {:.3g} times optimizer.lr (optimizer.layer_decay)", smallest);
  }
  if (options.freeze.empty()) return;
  int64_t num_trained = 0;
  int64_t num_all = 0;
  for (const auto& parameter : network.model->parameters()) {
    num_all += parameter.numel();
    if (parameter.requires_grad()) num_trained += parameter.numel();
  }
  const auto& after = options.unfreeze_after;
  rank_.logger->info("{} of {} are trained, the others are frozen (model.freeze){}", num_trained, counted(num_all, "parameter"),
                     after ? fmt::format(" for {} (training.unfreeze_after)", counted(*after, "epoch")) : "");
}

// Only rank 0 loads weights; DataParallel sends them to all ranks.
void Session::init_weights(engine::Network& network, const engine::Samples& train) const {
  const auto& options = recipe_.options;
  auto& model = *network.model;
  if (rank_.number() != 0 || is_resumed()) return;
  if (model.num_fitted_images() > 0) {
    inference::fit_model(model, train.dataset(),
                         engine::make_pipeline(recipe_.parts.validation_transforms, train.info(), network.placement));
  }
  if (recipe_.load_weights) recipe_.load_weights(model, train.info());
  if (options.init_from.empty()) return;
  const auto report = inference::init_model(options.init_from, options.init_strict, model, train.info().class_names);
  rank_.logger->info("{}", report.text);
  if (!report.warning.empty()) rank_.logger->warn("{}: {}", recipe_.place("model.init_from"), report.warning);
}

engine::Data Session::take_features(engine::Network& network, engine::Data images) {
  if (!recipe_.cache_features) return images;
  rank_.barrier.on_all_ranks([&] {
    if (start_.checkpoint) inference::load_weights(start_.checkpoint->tree, start_.checkpoint->file.string(), *network.model);
  });
  const auto& world = *rank_.ranks.world;
  if (world.size() > 1) {
    auto tensors = network.model->parameters();
    for (const auto& buffer : network.model->buffers()) tensors.push_back(buffer);
    const distributed::PackedTensors weights(std::move(tensors));
    const auto bytes = weights.read();
    world.broadcast(bytes);
    weights.write(bytes);
  }
  return recipe_.cache_features(network, std::move(images), [&](engine::TrainingSamples features) {
    recipe_.parts.train_transforms.clear();
    recipe_.parts.validation_transforms.clear();
    return rank_.barrier.make_on_all_ranks([&] { return recipe::make_data(recipe_, network.placement, rank_.ranks, std::move(features)); });
  });
}

void Session::open_saver() {
  const auto folder = directory_ ? directory_->checkpoint_folder() : recipe_.options.checkpoint_folder;
  if (rank_.number() != 0 || folder.empty()) return;
  const FileAccess access("opening the folder", folder);
  checkpoint::Store store(folder, recipe_.options.keep_last, directory_ ? &directory_->written_files() : nullptr);
  if (store.link_error()) {
    rank_.logger->warn("{}: symbolic links cannot be created there ({}); last.pt and best.pt will be hard links or copies of checkpoints",
                       folder.string(), store.link_error().message());
  }
  check_sizes(store, folder);
  if (start_.checkpoint) bring_best(store);
  saver_.emplace(std::move(store), rank_.placement.pin_memory);
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
  rank_.logger->warn("{}", text);
}

// A run that resumes from a checkpoint of another folder copies the best checkpoint of that folder, so that best.pt belongs to the best
// validation that the run reports.
void Session::bring_best(const checkpoint::Store& store) const {
  auto& logger = *rank_.logger;
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
  engine::RunCallbacks callbacks{.checkpoints = {.saver = saver_ ? &*saver_ : nullptr}, .advise_on_data = recipe_.advise_on_data};
  if (!directory_) return callbacks;
  callbacks.checkpoints.complete = [this](state::Dict& tree) {
    state::Dict sizes;
    for (const auto& [name, size] : directory_->event_files()) sizes.add(name, size);
    // After the sizes: if another run has removed these files, it has the lock as well.
    directory_->check_lock();
    tree.add("event_files", std::move(sizes));
    if (recipe_.record) tree.add("config", recipe_.record->text);
    for (const auto& [name, digest, change] : digests_) {
      if (!digest.empty()) tree.add(name, digest);
    }
    std::vector<int64_t> threads;
    for (const auto& rank : rank_.ranks.infos) threads.push_back(rank.num_threads);
    tree.add("num_threads", state::List(threads.begin(), threads.end()));
    tree.add("trainer_version", run::trainer_version());
  };
  callbacks.non_finite_step = [this](const engine::StepRecord& record) {
    directory_->check_lock();
    const auto folder = directory_->non_finite_folder() / fmt::format("step_{}", record.step);
    for (const auto& file : engine::step_files(folder)) directory_->written_files().add(file);
    engine::write_step(folder, record, *parts_->network.model, recipe_.record ? recipe_.record->text : "");
    return folder;
  };
  return callbacks;
}

void Session::add_sinks(reporting::Reporter& reporter, reporting::EventCommand* lines) {
  if (rank_.number() != 0) return;
  if (directory_) {
    const auto& info = parts_->data.train.samples.info();
    auto files = std::make_unique<reporting::Reporter>([this] { directory_->check_lock(); });
    files->add(reporting::make_jsonl(directory_->metrics_file(), lines));
    files->add(reporting::make_csv(directory_->metrics_table_file(), task::all_metrics()));
    if (recipe_.record && recipe_.record->experiment->logging.tensorboard) {
      files->add(reporting::make_tensorboard(directory_->tensorboard_folder(), &directory_->written_files()));
    }
    for (const auto which : {reporting::Validations::kAll, reporting::Validations::kBest}) {
      const auto file = which == reporting::Validations::kAll ? directory_->evaluation_file() : directory_->best_evaluation_file();
      files->add(reporting::make_evaluation(file, which, info.output_names(), *rank_.logger));
    }
    files->add(reporting::make_summary(directory_->summary_file()));
    reporter.add(std::move(files));
  }
  for (auto& sink : recipe_.parts.sinks) reporter.add(std::move(sink));
}

void Session::resume(const std::filesystem::path& file) {
  rank_.barrier.on_all_ranks([&] {
    if (rank_.number() == 0) start_.checkpoint = {file, checkpoint::load(file)};
  });
  resume_from_ = file;
}

bool Session::train(reporting::Sink& reporter, const std::function<bool()>& should_stop, const std::vector<engine::TrainingHook*>& hooks) {
  engine::TrainingLoop loop(recipe_.options.loop, *parts_, reporter, should_stop, run_callbacks());
  for (const auto& hook : recipe_.parts.hooks) loop.add_hook(*hook);
  for (auto* hook : hooks) loop.add_hook(*hook);
  std::optional<engine::Histograms> histograms;
  if (recipe_.histograms_every_epochs && rank_.number() == 0) {
    loop.add_hook(histograms.emplace(*parts_, loop.part(), *recipe_.histograms_every_epochs, reporter));
  }
  if (is_resumed()) {
    const auto checkpoint = broadcast(resume_from_, std::move(start_.checkpoint), *rank_.ranks.world);
    rank_.barrier.on_all_ranks([&] { loop.resume(checkpoint.tree, checkpoint.file.string()); });
  }
  try {
    const bool is_done = loop.run();
    if (is_done && recipe_.on_done) recipe_.on_done();
    return is_done;
  } catch (const std::exception& error) {
    // On a GPU, on_failure ends the process, so the checkpoint that is being written must be finished first; it is valid although
    // training has failed since.
    if (saver_ && rank_.placement.cuda != nullptr) saver_->finish();
    if (recipe_.on_failure) recipe_.on_failure(error);
    throw;
  }
}

}  // namespace trainer::session
