#include "run/rank/rank_context.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/crash.h"
#include "base/program.h"
#include "base/signal.h"
#include "base/text.h"
#include "checkpoint/store.h"
#include "config/sections.h"
#include "datasets/staged_folder.h"
#include "device/cuda_module.h"
#include "device/libtorch_settings.h"
#include "distributed/context.h"
#include "distributed/secret.h"
#include "launch/world/host_resources.h"
#include "launch/world/slurm.h"
#include "run/rank/cached_features.h"
#include "run/recipe/build.h"
#include "run/recipe/registries.h"
#include "run/samples/open_samples.h"
#include "run/version.h"
#include "run/weights.h"

namespace trainer::rank {
namespace {

// The number of GPUs that Slurm has allocated to the tasks of this host. Not set without Slurm, with runtime.device: cpu, and on all ranks
// of a host except the first, which checks for all of them.
std::optional<int> slurm_gpus_to_check(const world::RankEnv& rank_env, const config::Experiment& experiment) {
  const bool checks = rank_env.local_rank == 0 && experiment.runtime.device != device::DeviceChoice::kCpu;
  return checks ? rank_env.slurm_gpus : std::nullopt;
}

void check_slurm_gpus(const world::RankEnv& rank_env, const config::Experiment& experiment, Logger& logger) {
  const auto num_gpus = slurm_gpus_to_check(rank_env, experiment);
  if (!num_gpus) return;
  // With gloo, several ranks can share the one visible GPU.
  const bool may_share = *num_gpus == 1 && experiment.distributed.backend == distributed::BackendChoice::kGloo;
  const auto refusal = world::too_few_gpus(rank_env.local_world_size, *num_gpus);
  if (!refusal.empty() && !may_share) throw UsageError(refusal);
  if (const auto warning = world::idle_gpus(rank_env.local_world_size, *num_gpus); !warning.empty()) logger.warn("{}", warning);
}

void warn_of_hidden_gpus(const world::RankEnv& rank_env, const config::Experiment& experiment, Logger& logger) {
  const auto num_gpus = slurm_gpus_to_check(rank_env, experiment);
  if (!num_gpus || *num_gpus == 0) return;
  logger.warn(
      "Slurm has allocated {} to this node (SLURM_GPUS_ON_NODE), but this program finds none on {} and uses the CPU; if it runs in a "
      "container, start the container with access to GPUs, for example with apptainer's --nv",
      counted(*num_gpus, "GPU"), host_name());
}

// Throws UsageError if two ranks use the same GPU.
void refuse_shared_gpus(const std::vector<distributed::RankInfo>& ranks) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const bool same = !ranks[i].pci_bus_id.empty() && ranks[i].pci_bus_id == ranks[j].pci_bus_id && ranks[i].host == ranks[j].host;
      if (!same) continue;
      throw UsageError(
          fmt::format("ranks {} and {} use the same GPU {} on {}, which NCCL does not support; start one process per GPU, or set "
                      "distributed.backend: gloo",
                      j, i, ranks[i].pci_bus_id, ranks[i].host));
    }
  }
}

// To be called on one rank of each host.
void warn_of_small_shared_memory(const std::vector<distributed::RankInfo>& ranks, int rank, Logger& logger) {
  const auto& mine = ranks[static_cast<size_t>(rank)];
  const auto has_gpu_here = [&](const distributed::RankInfo& row) { return row.host == mine.host && !row.pci_bus_id.empty(); };
  if (mine.pci_bus_id.empty() || std::ranges::count_if(ranks, has_gpu_here) < 2) return;
  const auto text = world::describe_small_shared_memory();
  if (!text.empty()) logger.warn("{}", text);
}

bool reads_own_samples(const config::Experiment& experiment) { return experiment.dataset.distribution == engine::Distribution::kLocal; }

// Without what reads the data set, to which ranks other than 0 may have no access unless each rank reads its own samples.
config::Registries registries_of_rank(int rank) {
  auto registries = recipe::all_registries();
  if (rank == 0) return registries;
  registries.complete = [complete = registries.complete](const auto& experiment, const auto& findings) {
    return reads_own_samples(experiment) ? complete(experiment, findings) : experiment;
  };
  registries.check = [check = registries.check](const auto& experiment, auto& findings) {
    if (reads_own_samples(experiment)) check(experiment, findings);
  };
  return registries;
}

void warn_of_ignored_keys(const config::Experiment& experiment, Logger& logger) {
  for (const auto& key : experiment.ignored_keys) logger.warn("{}", key);
}

// Values as a message to another rank, and back.
std::string to_message(const std::vector<config::Value>& values) {
  nlohmann::ordered_json json;
  for (const auto& value : values) json[value.key] = value.text;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}
std::vector<config::Value> from_message(const std::string& message) {
  const auto json = nlohmann::ordered_json::parse(message);
  std::vector<config::Value> values;
  for (const auto& [key, text] : json.items()) values.push_back({key, text});
  return values;
}

// The resolved values without those that come from the data set, to which some ranks may have no access.
std::vector<config::Value> values_without_data(const config::Experiment& experiment) {
  const auto registries = recipe::registries_without_check();
  return config::values_of(config::load_tree(experiment.tree, registries), registries);
}

std::shared_ptr<Logger> set_up_process(const world::RankEnv& rank_env) {
  // Ranks connect to and watch each other with several threads; if one could not be started, the process would abort.
  constexpr int kThreadsBesideTraining = 8;
  if (rank_env.world_size > 1) world::check_threads(kThreadsBesideTraining);
  c10::initLogging();
  install_crash_handlers();
  install_stop_handlers();
  // Ignored so that training continues when the reader of the output exits.
  std::signal(SIGPIPE, SIG_IGN);
  // Rank 0 may have drawn its progress bar on the line to which another rank writes, so the other ranks erase the line first.
  return make_console_logger(rank_env.rank, rank_env.rank != 0 && world::can_redraw_lines());
}

// The data set of the experiment, copied to a disk of this host if dataset.stage_to is set; `staged` is then the copy.
data::DatasetFactory place_dataset(RankContext& context, std::optional<datasets::StagedFolder>& staged) {
  const auto& section = context.experiment().dataset;
  auto dataset = samples::dataset_of(context.experiment());
  if (section.stage_to.empty()) return dataset;
  const bool is_first_of_host = context.local_rank() == 0;
  const auto folder = dataset.locate(context.logger());
  const auto files = dataset.list_files ? dataset.list_files() : std::vector<std::filesystem::path>{};
  staged.emplace(folder, files, section.stage_to, /*is_current=*/!is_first_of_host, context.logger());
  return dataset.in_folder(staged->path());
}

device::Placement choose_placement(distributed::Context& context, device::PlacementOptions options) {
  const bool is_cuda = context.device().is_cuda();
  options.device = is_cuda ? device::DeviceChoice::kCuda : device::DeviceChoice::kCpu;
  const device::HostShare share{
      .num_threads = world::default_compute_threads(distributed::ContextAccess::num_processes_sharing_cpus(context)).count,
      .local_rank = is_cuda ? context.device().index() : 0};
  const auto placement = device::choose_placement(options, share, is_cuda ? device::open_cuda_module() : device::CudaAccess());
  device::apply_placement(placement, options);
  return placement;
}

}  // namespace

RankContext::RankContext(RankProcess& process, const RankProcess::Load& load) : process_(&process), rank_{.logger = process.logger()} {
  const auto& rank_env = process.rank_env();
  distributed::Problem problem;
  auto secret = rank_env.secret;
  try {
    const auto registries = registries_of_rank(rank_env.rank);
    experiment_ = load(registries);
    if (rank_env.rank == 0) warn_of_ignored_keys(experiment_, *rank_.logger);
    const auto tree = config::resolved_tree(experiment_, registries);
    record_.values = config::values_of(tree);
    record_.text = config::to_yaml(tree);
    const auto& file = experiment_.distributed.secret_file;
    if (rank_env.world_size > 1 && !file.empty()) secret = distributed::read_secret_file(file, *rank_.logger);
  } catch (const Error& error) {
    if (rank_env.world_size == 1) throw;
    problem = {error.what(), static_cast<int>(error.exit_code())};
  }
  const auto& section = experiment_.distributed;
  process.supervisor().set_hang_limit(std::chrono::seconds(section.hang_seconds));
  const auto point = world::rendezvous_address(rank_env, section.init_method);
  distributed::Rendezvous rendezvous{.store = {}, .group_store = {}, .ranks = {distributed::this_process()}, .address = "127.0.0.1"};
  if (point.kind != world::RendezvousAddress::Kind::kAlone) {
    record_.ranks_source = rank_env.description;
    const auto version =
        fmt::format("trainer {} ({}) with LibTorch {}", run::trainer_version(), run::git_revision(), run::libtorch_version());
    distributed::Hello mine{.rank = rendezvous.ranks.front(), .version = version, .problem = problem};
    if (problem.text.empty()) {
      mine.config = to_message(values_without_data(experiment_));
      if (reads_own_samples(experiment_)) mine.config_with_data = to_message(record_.values);
    }
    const std::chrono::seconds timeout(section.timeout_seconds);
    rendezvous =
        distributed::join_run(rank_env, point, mine, secret, timeout, *rank_.logger, [](const auto& of_rank0, const auto& of_other) {
          return config::to_string(config::differences(from_message(of_rank0), from_message(of_other)));
        });
    rank_.barrier = {rendezvous.store, rank_env.rank, rank_env.world_size, timeout};
    process.supervisor().begin(rendezvous);
  }
  rank_.local_rank = rendezvous.local_rank;
  if (!reads_own_samples(experiment_)) take_experiment_of_rank0();
  choose_placement_together(rendezvous);
  rank_.barrier.on_all_ranks([&] { make_groups(rendezvous); });
}

void RankContext::take_experiment_of_rank0() {
  record_.text = rank_.barrier.on_rank0([&] { return record_.text; });
  if (process_->rank_env().rank == 0) return;
  auto tree = std::move(experiment_.tree);
  // Not checked again: rank 0 has checked it with the data set, to which this rank may have no access.
  const auto registries = recipe::registries_without_check();
  experiment_ = config::load_text(record_.text, "the configuration of rank 0", {}, registries);
  experiment_.tree = std::move(tree);
  record_.values = config::values_of(experiment_, registries);
}

RankContext::RankContext(config::Experiment experiment, const device::HostShare& share, std::shared_ptr<Logger> logger, engine::Ranks ranks)
    : experiment_(std::move(experiment)), rank_{.logger = std::move(logger), .ranks = std::move(ranks), .local_rank = share.local_rank} {
  warn_of_ignored_keys(experiment_, *rank_.logger);
  choose_placement(share);
}

void RankContext::choose_placement(const device::HostShare& share) {
  device::configure_cpu_allocator();
  device::CudaAccess cuda;
  if (experiment_.runtime.device != device::DeviceChoice::kCpu) cuda = device::open_cuda_module();
  if (experiment_.runtime.device == device::DeviceChoice::kAuto && !cuda.refusal.empty()) {
    rank_.logger->warn("an NVIDIA driver is installed, but this program uses the CPU: {}", cuda.refusal);
  }
  if (cuda.module != nullptr) device::apply_allocator(experiment_.runtime.cuda_allocator);
  const auto options = recipe::placement_options(experiment_);
  rank_.placement = device::choose_placement(options, share, cuda);
  auto& num_workers = experiment_.dataloader.num_workers.value;
  if (!num_workers) num_workers = recipe::default_num_workers(rank_.placement);
  // Checked here because OpenMP would end the process without a message if a thread could not be started. Two loaders have their own
  // threads, and further threads write checkpoints, watch other ranks and so on.
  constexpr int64_t kOthers = 4;
  world::check_threads(static_cast<int>(rank_.placement.num_threads + 2 * *num_workers + kOthers));
  device::apply_placement(rank_.placement, options);
}

void RankContext::choose_placement_together(distributed::Rendezvous& rendezvous) {
  const auto& rank_env = process_->rank_env();
  const auto infos = rank_.barrier.gather([&] {
    check_slurm_gpus(rank_env, experiment_, *rank_.logger);
    const auto threads = world::default_compute_threads(rendezvous.num_sharing_cpus);
    choose_placement({.num_threads = threads.count, .local_rank = rank_.local_rank});
    if (rank_.placement.device.is_cpu()) {
      const auto by_key = fmt::format("{}: runtime.threads", counted(rank_.placement.num_threads, "compute thread"));
      record_.threads_source = experiment_.runtime.threads.value ? by_key : threads.description;
    }
    if (rank_.placement.cuda == nullptr) warn_of_hidden_gpus(rank_env, experiment_, *rank_.logger);
    auto& mine = rendezvous.ranks[static_cast<size_t>(rank_env.rank)];
    mine.device = rank_.placement.device.str();
    if (rank_.placement.cuda != nullptr) mine.pci_bus_id = rank_.placement.cuda->pci_bus_id(rank_.placement.device.index());
    mine.num_threads = rank_.placement.num_threads;
    return nlohmann::json(mine).dump();
  });
  for (size_t rank = 0; rank < infos.size(); ++rank) rendezvous.ranks[rank] = nlohmann::json::parse(infos[rank]);
}

void RankContext::make_groups(const distributed::Rendezvous& rendezvous) {
  const auto& section = experiment_.distributed;
  const auto& rank_env = process_->rank_env();
  if (section.backend != distributed::BackendChoice::kGloo) {
    refuse_shared_gpus(rendezvous.ranks);
    if (rank_.local_rank == 0) warn_of_small_shared_memory(rendezvous.ranks, rank_env.rank, *rank_.logger);
  }
  const auto activity = process_->supervisor().activity();
  const distributed::GroupOptions options{.backend = section.backend,
                                          .device = rank_.placement.device,
                                          .cuda = rank_.placement.cuda,
                                          .gloo_interface = rank_env.gloo_interface,
                                          .gloo_address = rendezvous.address,
                                          .timeout = std::chrono::seconds(section.timeout_seconds),
                                          .activity = activity,
                                          .ranks = rendezvous.ranks};
  // A single process needs no backend unless the configuration sets one.
  const bool needs_backend = rendezvous.store || section.backend != distributed::BackendChoice::kAuto;
  const bool with_nccl = needs_backend && distributed::uses_nccl(options);
  const auto start = std::chrono::steady_clock::now();
  if (with_nccl) activity->enter(distributed::Phase::kConnect);
  if (needs_backend) {
    const auto store =
        rendezvous.group_store ? rendezvous.group_store : c10::intrusive_ptr<c10d::Store>(c10::make_intrusive<c10d::HashStore>());
    groups_ = std::make_unique<distributed::ProcessGroups>(store, rank_env.rank, rank_env.world_size, options);
  } else {
    groups_ = std::make_unique<distributed::ProcessGroups>(rendezvous.ranks.front(), activity);
  }
  rank_.ranks = recipe::make_ranks(experiment_, *groups_);
  if (!with_nccl) return;
  activity->enter(distributed::Phase::kStartUp);
  rank_.logger->info("NCCL has connected {} in {}", counted(rank_env.world_size, "GPU"),
                     format_duration(std::chrono::steady_clock::now() - start));
  connection_watch_ = distributed::watch_connections(
      [this] { return groups_->connection_error(); },
      [&supervisor = process_->supervisor()](const std::string& error) { supervisor.lose_connection(error); });
}

void RankContext::close() {
  // Until all ranks have finished, losing a rank is a failure; afterwards ranks end at different times.
  rank_.ranks.world->barrier();
  process_->supervisor().end();
  connection_watch_ = {};
  try {
    groups_->shutdown();
  } catch (const PeerError&) {
    // A rank was lost when there was nothing left to do.
  }
}

void RankContext::end_failed_gpu(const std::exception& error) {
  if (process_ != nullptr && rank_.placement.cuda != nullptr) end_failed(error);
}

ExitCode RankContext::end_failed(const std::exception& error) {
  auto& supervisor = process_->supervisor();
  const auto exit_code = exit_code_of(error);
  if (dynamic_cast<const AgreedError*>(&error) != nullptr) {
    supervisor.report(error.what(), exit_code);
    // All ranks exit together, because launchers report the first process that exits as the root cause.
    try {
      rank_.barrier.on_all_ranks([] {});
    } catch (const PeerError&) {
      // The error that all ranks agreed on has already been reported.
    }
    supervisor.end();
  } else {
    supervisor.report(supervisor.explain(error), exit_code);
  }
  const bool can_resume = exit_code == ExitCode::kFailure || exit_code == ExitCode::kPeer;
  if (can_resume && checkpoint_folder_ && !checkpoint_folder_->empty()) {
    const auto checkpoints = checkpoint::list_checkpoints(*checkpoint_folder_);
    if (checkpoints.empty()) {
      rank_.logger->info("no checkpoint has been saved: the same command starts again from the first step");
    } else {
      rank_.logger->info("the same command resumes from {}", checkpoints.front().string());
    }
  }
  if (process_->rank_env().world_size > 1 || rank_.placement.cuda != nullptr) {
    // The other ranks detect the failure when this process's connections close; destructors would wait for the other ranks first. After a
    // GPU error, destructors would also fail to free GPU memory.
    supervisor.leave(exit_code);
  }
  supervisor.end();
  groups_->shutdown();
  return exit_code;
}

RankProcess::RankProcess(const world::RankFlags& flags)
    : rank_env_(world::find_rank_env(flags, world::process_environment())),
      logger_(set_up_process(rank_env_)),
      supervisor_(rank_env_, logger_) {}

ExitCode RankProcess::run(const Load& load, const Work& work) {
  try {
    RankContext context(*this, load);
    try {
      const auto exit_code = work(context);
      context.close();
      return exit_code;
    } catch (const std::exception& error) {
      if (!context.checkpoint_folder_) throw;
      return context.end_failed(error);
    }
  } catch (const std::exception& error) {
    throw Error(supervisor_.explain(error), exit_code_of(error));
  }
}

RankProcess::Load RankProcess::from_file(const config::ExperimentSource& source,
                                         const std::function<void(config::Experiment& experiment)>& adapt) const {
  return [this, source, adapt](const config::Registries& registries) {
    if (rank_env_.world_size > 1 && source.file == config::kStandardInput) {
      throw UsageError("--config -: several processes cannot share standard input; write the experiment to a file");
    }
    auto experiment = config::load(source.file, source.overrides, registries);
    if (adapt) adapt(experiment);
    return experiment;
  };
}

recipe::Recipe recipe_of(RankContext& context) {
  const auto& experiment = context.experiment();
  auto& logger = context.logger();
  auto recipe = recipe::recipe_of(experiment, logger);
  const auto staged = std::make_shared<std::optional<datasets::StagedFolder>>();
  recipe.open_samples = [&context, &experiment, &logger, staged] {
    const auto num_overfit = recipe::num_overfit_samples(experiment, context.ranks().world->size());
    auto samples = samples::open_samples(experiment, place_dataset(context, *staged), logger, num_overfit);
    if (num_overfit && context.rank() == 0) {
      logger.warn("{}: training and validation use only {}", experiment.place_of("training.overfit_batches"),
                  counted(samples.train.size(), "image"));
    }
    return samples;
  };
  recipe.on_done = [staged, &logger] {
    if (*staged) (*staged)->remove(logger);
  };
  recipe.load_weights = [&experiment, &logger](models::Model& model, const data::DatasetInfo& info) {
    const auto& section = experiment.model;
    if (section.weights.empty()) return;
    const auto& name = section.component.name;
    std::optional<run::WeightsFolder> folder;
    if (run::is_folder(section.weights)) folder = run::read_weights_folder(section.weights, name);
    const auto file =
        folder ? folder->file : run::fetch_weights(run::weights_source(name, section.weights, section.weights_mirror), logger);
    logger.info("{}", run::load_published_weights(file, name, model, info.class_names).text);
    if (!folder) return;
    logger.info("license of these weights: {}", folder->license.empty() ? "not stated in config.json" : printable(folder->license));
  };
  if (experiment.training.cache_features) {
    recipe.cache_features = [&context](engine::Network& network, engine::Data images, const recipe::Recipe::MakeData& make_data) {
      return cache_features(context, network, std::move(images), make_data);
    };
  }
  recipe.on_log = [&context](const std::filesystem::path& checkpoints) { context.begin_run(checkpoints); };
  recipe.on_failure = [&context](const std::exception& error) { context.end_failed_gpu(error); };
  return recipe;
}

run::Rank rank_of(distributed::Context& context, const TrainerOptions& options) {
  run::Rank rank{
      .logger = context.logger()->clone(context.logger()->name()),  // to which the log of a run directory is added
      .placement = choose_placement(context, options.placement),
      .ranks = engine::make_ranks(distributed::ContextAccess::groups_of(context), {.synchronises_statistics = options.sync_batch_norm}),
      .barrier = distributed::StartupBarrier(context.world()),
      .local_rank = context.local_rank()};
  const auto devices = rank.ranks.world->all_gather_bytes(rank.placement.device.str());
  for (size_t i = 0; i < devices.size(); ++i) rank.ranks.infos[i].device = devices[i];
  return rank;
}

}  // namespace trainer::rank
