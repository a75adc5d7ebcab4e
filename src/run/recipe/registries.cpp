#include "run/recipe/registries.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <regex>
#include <set>

#include "config/yaml.h"
#include "data/batch_transforms/batch_mixer.h"
#include "data/samplers/sampler.h"
#include "data/transforms/transform.h"
#include "datasets/dataset_registry.h"
#include "models/model_registry.h"
#include "run/recipe/check.h"
#include "run/samples/open_samples.h"
#include "train/optim/lr_scheduler.h"
#include "train/optim/optimizer.h"
#include "train/task/task.h"
#include "trainer/error.h"
#include "trainer/nn.h"
#include "trainer/registry.h"

namespace trainer::recipe {
namespace {

config::MonitorChoices monitor_choices() {
  const auto name = [](const std::string& metric) { return "validation/" + metric; };
  config::MonitorChoices choices;
  const auto columns = task::all_metrics().validation;
  for (size_t i = 1; i < columns.size(); ++i) choices.names.push_back(name(columns[i].name));
  choices.names.push_back(name(columns[0].name));
  for (const auto& task : task::task_registry().names()) {
    const auto metric = task::task_registry().make(task::task_registry().configure(task), nullptr)->default_metric();
    choices.default_doc += fmt::format("{}{} for {}", choices.default_doc.empty() ? "" : ", ", name(metric), task);
  }
  return choices;
}

}  // namespace

config::Registries all_registries() {
  // `complete` and `check` see the same files, and a long CSV file is read once for both.
  struct Made {
    std::mutex mutex;  // several threads may load experiments with the same registries
    std::shared_ptr<Options> options;
    data::DatasetFactory factory;
  };
  const MakeDataset make = [made = std::make_shared<Made>()](const config::Experiment& experiment) {
    const auto& options = experiment.dataset.component.options;
    const std::lock_guard lock(made->mutex);
    if (made->options != options) {
      made->factory = samples::dataset_of(experiment);
      made->options = options;
    }
    return made->factory;
  };
  return {.models = models::model_registry(),
          .layers = models::layer_registry(),
          .datasets = datasets::dataset_registry(),
          .transforms = data::transform_registry(),
          .batch_transforms = data::batch_transform_registry(),
          .tasks = task::task_registry(),
          .losses = nn::loss_registry(),
          .optimizers = optim::optimizer_registry(),
          .lr_schedulers = optim::lr_scheduler_registry(),
          .samplers = data::sampler_registry(),
          .sinks = reporting::sink_registry(),
          .monitor = monitor_choices,
          .complete = [make](const auto& experiment, const auto& findings) { return complete(experiment, findings, make); },
          .check = [make](const auto& experiment, auto& findings) { check_components(experiment, findings, make); },
          .load_plugin = load_plugin};
}

config::Registries registries_without_check() {
  auto registries = all_registries();
  registries.complete = {};
  registries.check = {};
  return registries;
}

namespace {

namespace fs = std::filesystem;

// The part of the version that must match in a plug-in: of trainer, below 1.0, and of LibTorch the first two numbers.
std::string interface_of(const std::string& version) {
  static const std::regex numbers(R"((\d+\.\d+)\S*)");
  return std::regex_replace(version, numbers, "$1");
}

std::set<fs::path>& loaded_names() {
  static std::set<fs::path> names;
  return names;
}

template <class Function>
Function function_of(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

// Lists the plug-ins of an experiment that are not loaded, and how to load them; empty if none is missing.
std::string describe_missing_plugins(const Node& experiment) {
  const auto* plugins = experiment.find("plugins");
  std::string options;
  if (plugins == nullptr) return options;
  for (const auto& plugin : plugins->value.items) {
    if (!loaded_names().contains(fs::path(plugin.text).filename())) options += " --plugin " + plugin.text;
  }
  return options.empty()
             ? ""
             : "the plug-ins listed in the experiment are loaded only if they are also given on the command line: add" + options;
}

}  // namespace

void load_plugin(const std::string& file) {
  static std::set<void*> loaded;
  std::error_code unreadable;
  const bool exists = fs::exists(file, unreadable);
  // The library is never closed, because the registered components use its code.
  void* const library = dlopen(exists ? fs::absolute(file).c_str() : file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const std::string reason = dlerror();
    if (!exists && reason.starts_with(file + ": cannot open")) {
      throw UsageError(fmt::format("there is no plug-in \"{}\"{}; build it, or correct the path", file,
                                   file.find('/') == std::string::npos ? " in this folder or in the library path (LD_LIBRARY_PATH)" : ""));
    }
    throw UsageError(fmt::format("the plug-in \"{}\" cannot be loaded: {}; build it again with the library of this program, version {}",
                                 file, reason, TRAINER_PLUGIN_VERSION));
  }
  if (loaded.contains(library)) return;
  const auto version = function_of<const char* (*)()>(library, "trainer_plugin_version");
  const auto add_components = function_of<void (*)()>(library, "trainer_plugin_register");
  if (version == nullptr || add_components == nullptr) {
    throw UsageError(
        fmt::format("\"{}\" is not a plug-in for trainer, because it has no TRAINER_PLUGIN(); correct the path, or add this macro", file));
  }
  if (interface_of(version()) != interface_of(TRAINER_PLUGIN_VERSION)) {
    throw UsageError(fmt::format("the plug-in \"{}\" was built for trainer {}, and this is trainer {}; build it again with this version",
                                 file, version(), TRAINER_PLUGIN_VERSION));
  }
  try {
    add_components();
  } catch (const std::exception& error) {
    throw UsageError(
        fmt::format("the plug-in \"{}\" cannot register its components: {}; correct the plug-in and build it again", file, error.what()));
  }
  loaded.insert(library);
  loaded_names().insert(fs::path(file).filename());
}

config::Experiment load_without_plugins(const std::string& text, const std::string& source, const std::vector<std::string>& overrides,
                                        const config::Registries& registries, config::UnknownKeys unknown_keys) {
  try {
    return config::load_text(text, source, overrides, registries, unknown_keys);
  } catch (const UsageError& error) {
    const auto missing = describe_missing_plugins(config::parse_yaml(text, source));
    if (missing.empty()) throw;
    throw UsageError(fmt::format("{}; {}", error.what(), missing));
  }
}

}  // namespace trainer::recipe
