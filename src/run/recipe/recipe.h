#pragma once
// What a run consists of: made from an experiment file (build.h), or from components in code (trainer/trainer.h). A Session runs it.

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "config/differences.h"
#include "run/rank.h"
#include "train/engine/failure_message.h"
#include "train/engine/parts.h"
#include "train/engine/run_state.h"
#include "trainer/error.h"
#include "trainer/trainer.h"

namespace trainer::recipe {

// What only runs with an experiment file have in their run directories and checkpoints.
struct ExperimentRecord {
  const config::Experiment* experiment;
  std::vector<config::Value> values = {};      // of the resolved configuration
  std::string text = {};                       // the same as a file
  std::vector<std::string> command_line = {};  // for environment.json
  // One line: the number of compute threads on the CPU, and where it comes from. Empty on a GPU.
  std::string threads_source = {};
  std::string ranks_source = {};  // one line: the ranks, and the flags or variables that set them; empty in a run of one process
};

struct Recipe {
  TrainerParts parts;  // their task and data sets are not used: see make_task and open_samples
  TrainerOptions options;

  engine::MakeTask make_task;  // called once

  // For messages.
  std::string network = "the network";
  std::string loss = "the loss";
  engine::PlaceOf place_of = {};  // empty for components in code, whose errors name members
  std::string place(const std::string& key) const { return place_of ? place_of(key) : key; }

  // Opens the samples, on a rank that reads samples.
  std::function<engine::OpenedSamples()> open_samples;
  ComponentConfig sampler;
  engine::Distribution distribution = engine::Distribution::kLocal;
  std::vector<ComponentConfig> batch_transforms = {};
  int64_t num_unmixed_epochs = 0;
  std::function<void(const std::string& text)> report_skipped = {};  // as in data::LoaderOptions

  // On rank 0 of a run that begins: sets weights before those of options.init_from.
  std::function<void(models::Model& model, const data::DatasetInfo& info)> load_weights = {};
  // Collective: replaces images by features, which become the network's input. `make_data`: makes the data of the run from such samples.
  using MakeData = std::function<engine::Data(engine::TrainingSamples features)>;
  std::function<engine::Data(engine::Network& network, engine::Data images, const MakeData& make_data)> cache_features = {};
  std::optional<int64_t> histograms_every_epochs = {};
  std::function<std::string(const engine::Interval& epoch, int64_t number)> advise_on_data = {};

  // The directory of the run is options.run_directory; `resume` is the value of --resume, which has an effect only with a directory.
  std::string resume = "auto";
  std::optional<ExperimentRecord> record = {};
  // Called when the run has a log, with the folder of checkpoints, which is empty except on the rank that saves.
  std::function<void(const std::filesystem::path& checkpoints)> on_log = {};
  // Called after an error in training, before anything is destroyed.
  std::function<void(const std::exception& error)> on_failure = {};
  // Called when all steps have been trained.
  std::function<void()> on_done = {};
};

// Makes the network with its task and optimizer. Not collective. Throws UsageError when memory runs out, and
// for names of layers and parameters that the network does not have (train/engine/freezing.h).
engine::Network make_network(const Recipe& recipe, const device::Placement& placement, const engine::Ranks& ranks);
// Makes the plan, the loaders and the sources of batches. Not collective. Throws UsageError.
engine::Data make_data(const Recipe& recipe, const device::Placement& placement, const engine::Ranks& ranks,
                       engine::TrainingSamples samples);
// Makes the sampler of these training samples, which do not have to outlive it. Not collective. Throws UsageError and DataError.
data::Sampler make_sampler(const Recipe& recipe, const engine::Samples& train);
// Throws UsageError if the warm-up is not shorter than the training.
optim::LrSchedule make_lr_schedule(const Recipe& recipe, const engine::Plan& plan);
// Makes the loader and the batches of samples that are evaluated once. Not collective. Throws UsageError.
engine::DataSource make_source(const Recipe& recipe, const std::vector<ComponentConfig>& transforms, const device::Placement& placement,
                               const engine::Ranks& ranks, engine::Samples samples);

// Throws UsageError if network, task, optimizer, schedule and data cannot be used together.
void check_fit(const Recipe& recipe, const engine::Network& network, const engine::Data& data);
// The same for samples to evaluate. `which`: for messages.
void check_samples(const Recipe& recipe, const engine::Network& network, const engine::DataSource& source, const std::string& which);

// The keys of members of options, for messages.
using Keys = std::map<std::string, std::string>;
extern const Keys kPlanKeys;

// Calls `act`. If `place_of` is not empty, turns an OptionError into a UsageError that names the place of the key instead of the member.
template <class Act>
auto with_places(const engine::PlaceOf& place_of, const Keys& keys, const Act& act) {
  try {
    return act();
  } catch (const OptionError& error) {
    if (!place_of) throw;
    throw UsageError(place_of(keys.at(error.member())) + ": " + error.problem());
  }
}

}  // namespace trainer::recipe
