#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "commands/command.h"
#include "launch/world/host_resources.h"
#include "run/rank/rank_context.h"
#include "run/recipe/build.h"
#include "run/recipe/registries.h"
#include "run/session/session.h"
#include "train/engine/non_finite.h"
#include "train/engine/train_step.h"

namespace trainer::commands {
namespace {

config::Experiment load_experiment(const std::filesystem::path& folder, const engine::StepRecord& record,
                                   const std::vector<std::string>& overrides) {
  const auto file = engine::step_config_file(folder);
  auto experiment = recipe::load_without_plugins(read_file(file), file.string(), overrides, recipe::all_registries());
  auto& loader = experiment.dataloader;
  if (experiment.training.overfit_batches) {
    // training.overfit_batches selects the same images as in the run only with the run's global batch size.
    loader.global_batch_size = recipe::global_batch_size(experiment, record.world_size);
    loader.batch_size.reset();
  } else {
    size_t batch_size = 1;
    for (const auto& batch : record.batches) batch_size = std::max(batch_size, batch.size());
    loader.batch_size = static_cast<int64_t>(batch_size);
    loader.global_batch_size.reset();
  }
  // The parameters are read from the folder of the step.
  experiment.model.init_from.clear();
  experiment.model.weights.clear();
  // Features would be computed before the parameters of the step are read.
  experiment.training.cache_features = false;
  experiment.runtime.cuda_graph = device::CudaGraphChoice::kOff;
  if (record.loss_scale > 0) experiment.amp.scaler.init_scale = record.loss_scale;
  return experiment;
}

std::string heading(const engine::StepRecord& record) {
  const auto rank = record.world_size == 1 ? std::string()
                    : record.is_joined     ? fmt::format(", with the batches of all {} ranks", record.world_size)
                                           : fmt::format(", rank {} of {}", record.rank, record.world_size);
  return fmt::format("step {} of epoch {}{}, learning rate {:.6g}", record.step, record.epoch + 1, rank, record.lr);
}

void print_observations(const std::vector<engine::Observation>& observations) {
  std::vector<cli::Row> rows;
  for (const auto& [what, shape, largest, num_non_finite] : observations) {
    rows.push_back({what, fmt::format("{}", fmt::join(shape, "x")), fmt::format("{:.4g}", largest), std::to_string(num_non_finite)});
  }
  print("{}", cli::to_table({{""}, {"shape"}, {.title = "largest", .is_number = true}, {.title = "not finite", .is_number = true}}, rows));
}

// Repeats the step and prints the observations of each micro-step. Returns the name of the first observation that is not finite; empty if
// there is none.
std::string repeat_step(const engine::StepRecord& record, const config::Experiment& experiment, engine::Parts& parts) {
  parts.network.frozen_at_first.end_in(record.epoch);
  auto meter = parts.network.task->make_train_meter(parts.network.placement.device);
  engine::TrainStep train_step(parts, static_cast<uint64_t>(experiment.seed), experiment.training.max_grad_norm, meter);
  parts.network.model->train();
  std::string first;
  for (size_t number = 0; number < record.batches.size(); ++number) {
    const data::SampleList samples(record.batches[number], record.occurrences.at(number));
    parts.data.train.batches->start_epoch(record.epoch, [&](int /*rank*/) {
      return engine::RankShard{.samples = samples, .batch_sizes = {static_cast<int64_t>(samples.size())}};
    });
    const auto& batch = *parts.data.train.batches->next();
    const auto count = static_cast<int64_t>(record.batches.size());
    const auto position = static_cast<int64_t>(number);
    const auto observations = engine::observe_micro_step(parts, train_step, batch,
                                                         {.step = record.step,
                                                          .number = position,
                                                          .count = count,
                                                          .num_group_samples = record.num_group_samples,
                                                          .stream = position * record.world_size + record.rank,
                                                          .epoch = record.epoch});
    if (count > 1) print("\nmicro-step {} of {}\n", number + 1, count);
    print_observations(observations);
    const auto* found = engine::first_non_finite(observations);
    if (first.empty() && found != nullptr) first = found->what;
  }
  return first;
}

}  // namespace

ExitCode replay(const std::vector<std::string>& args) {
  CLI::App app(
      "Repeats a saved step whose loss or gradients were not finite, with the same parameters and samples, in one process. Prints the "
      "largest value of each tensor of the step, and the first tensor that is not finite.",
      "trainer replay");
  std::filesystem::path folder;
  std::vector<std::string> overrides;
  app.add_option("folder", folder, "the folder in which the run saved the step")->required()->type_name("DIR");
  app.add_option("overrides", overrides, "keys to try with other values, such as amp.enabled=false")->type_name("key=value");
  add_plugin_option(app);
  cli::parse(app, args);

  const auto record = engine::read_step(folder);
  rank::RankContext context(load_experiment(folder, record, overrides), {.num_threads = world::default_compute_threads().count},
                            make_console_logger());
  auto recipe = rank::recipe_of(context);
  session::Session session(context.this_rank(), recipe);
  engine::read_model(folder, *session.parts().network.model);
  print("{}\n", heading(record));
  const auto first = repeat_step(record, context.experiment(), session.parts());
  flush_standard_output();
  const auto in_run = record.first_non_finite.empty() ? "the sum of the gradients of all ranks" : record.first_non_finite;
  if (first.empty())
    throw Error(
        fmt::format("step {} is finite in this repetition, but in the run {} was not finite; if no override explains this, test the memory "
                    "or GPU of the host that trained this step",
                    record.step, in_run));
  print("\nfirst not finite: {}{}\n", first, first == in_run ? ", as in the run" : fmt::format("; in the run it was {}", in_run));
  return ExitCode::kDone;
}

}  // namespace trainer::commands
