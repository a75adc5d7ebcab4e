#include "session/network_file.h"

#include <fmt/format.h>

#include "config/load.h"
#include "engine/init_from.h"
#include "engine/run_state.h"
#include "run/run_directory.h"
#include "session/earlier_configuration.h"
#include "session/plugins.h"
#include "trainer/checkpoint.h"
#include "trainer/error.h"
#include "trainer/state.h"

namespace trainer::session {
std::filesystem::path find_in_run(const std::filesystem::path& folder,
                                  const std::function<std::filesystem::path(const std::filesystem::path& place)>& find) {
  for (const auto& place : {run::RunDirectory::checkpoint_folder_of(folder), folder}) {
    if (auto found = find(place); !found.empty()) return found;
  }
  return {};
}

std::filesystem::path checkpoint_of(const std::filesystem::path& path) {
  std::error_code unreadable;
  if (!std::filesystem::is_directory(path, unreadable)) return path;
  const auto file = find_in_run(path, [&](const std::filesystem::path& place) {
    for (const char* name : {"best.pt", "last.pt"}) {
      if (std::filesystem::is_regular_file(place / name, unreadable)) return place / name;
    }
    return std::filesystem::path();
  });
  if (file.empty()) throw CheckpointError(fmt::format("{}: {}", path.string(), kHoldsNoCheckpoint));
  return file;
}

NetworkFile::NetworkFile(const std::filesystem::path& path) : path_(checkpoint_of(path).string()), tree_(checkpoint::load(path_)) {}

bool NetworkFile::has_experiment() const { return state::View(tree_, path_).find("config").has_value(); }

config::Experiment NetworkFile::load_experiment(const std::vector<std::string>& overrides, const config::Registries& registries) const {
  const auto text = state::View(tree_, path_).at("config").text();
  auto experiment = load_without_plugins(text, path_ + ": config", overrides, registries);
  adapt_to_earlier_version(experiment);
  experiment.model.init_from.clear();
  return experiment;
}

config::Experiment NetworkFile::load_experiment(const std::filesystem::path& config, const std::vector<std::string>& overrides,
                                                const config::Registries& registries) const {
  if (config.empty() && !has_experiment()) {
    throw UsageError(
        fmt::format("{}: it holds weights without their experiment; give the experiment file of the network with --config FILE", path_));
  }
  if (config.empty()) return load_experiment(overrides, registries);
  auto experiment = config::load(config, overrides, registries);
  experiment.model.init_from.clear();
  return experiment;
}

std::vector<std::string> NetworkFile::class_names() const {
  std::vector<std::string> names;
  const auto stored = state::View(tree_, path_).find("class_names");
  if (!stored) return names;
  for (const auto& name : stored->elements()) names.push_back(name.text());
  return names;
}

std::vector<int64_t> NetworkFile::sample_shape() const {
  std::vector<int64_t> shape;
  const auto stored = state::View(tree_, path_).find("sample_shape");
  if (!stored) return shape;
  for (const auto& length : stored->elements()) shape.push_back(length.integer());
  return shape;
}

std::optional<NetworkFile::Progress> NetworkFile::progress() const {
  const state::View file(tree_, path_);
  if (!file.find("step") || !file.find("epoch") || !file.find("samples_in_epoch")) return std::nullopt;
  const engine::Progress progress{
      .epoch = file.at("epoch").integer(), .step = file.at("step").integer(), .samples_in_epoch = file.at("samples_in_epoch").integer()};
  return Progress{.epoch = progress.epoch_of_step(), .step = progress.step};
}

void NetworkFile::load_weights(bool averaged, torch::nn::Module& model) const {
  if (!averaged) return engine::load_weights(tree_, path_, model);
  const state::View file(tree_, path_);
  const auto from = file.find("ema");
  if (!from) file.fail("holds no averaged parameters, as checkpoints of a run with training.ema do; omit --ema");
  if (from->is_none()) from->fail("holds no averaged parameters; train with training.ema, or omit --ema");
  state::Dict weights;
  for (const auto& key : from->keys()) {
    if (key != state::Key("n_averaged")) weights.add(key, from->at(key).tensor());
  }
  engine::load_weights(weights, path_, model);
}

}  // namespace trainer::session
