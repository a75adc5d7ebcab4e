#include "run/weights.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "models/published_weights.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;

fs::path file_of(const models::PublishedWeights& weights) { return run::weights_folder() / weights.file; }

void list_weights() {
  print("{:<20} {:<26} {:>6}  {:>9}  {:>6}  {}\n", "network", "weights", "top1", "size", "images", "in the cache");
  const char* previous = "";
  for (const auto& weights : models::published_weights()) {
    const bool is_default = std::string_view(previous) != weights.model;
    previous = weights.model;
    print("{:<20} {:<26} {:>6.2f}  {:>5.0f} MiB  {:>6}  {}\n", weights.model,
          fmt::format("{}{}", weights.name, is_default ? " (default)" : ""), weights.top1, weights.size, weights.crop,
          fs::exists(file_of(weights)) ? "yes" : "no");
  }
  print(
      "\ntop1: accuracy on ImageNet in percent, as torchvision publishes it, for images with the height and width in the column "
      "\"images\". The cache is {}.\n",
      run::weights_folder().string());
}

// `name`: "resnet50", "resnet50:imagenet1k_v1" or a URL.
run::WeightsSource source_of(const std::string& name, const std::string& mirror) {
  if (run::is_address(name)) {
    const auto problem = run::problem_of_address(name);
    if (!problem.empty()) throw UsageError(problem);
    return run::weights_source("", name, mirror);
  }
  const auto colon = name.find(':');
  const auto model = name.substr(0, colon);
  const auto weights = colon == std::string::npos ? "default" : name.substr(colon + 1);
  if (models::find_published_weights(model, weights) == nullptr) {
    std::vector<std::string> names;
    for (const auto& one : models::published_weights()) {
      names.push_back(fmt::format("{}:{}", one.model, one.name));
      if (colon == std::string::npos) names.emplace_back(one.model);
    }
    const auto near = nearest_name(name, names);
    throw UsageError(fmt::format("there are no weights \"{}\"{}; `trainer weights list` shows all", name,
                                 near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
  }
  return run::weights_source(model, weights, mirror);
}

ExitCode verify_weights() {
  auto exit_code = ExitCode::kDone;
  size_t num_files = 0;
  const auto folder = run::weights_folder();
  std::vector<fs::path> files;
  if (fs::exists(folder)) {
    for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  for (const auto& file : files) {
    const auto name = file.filename().string();
    if (name.starts_with('.')) continue;
    ++num_files;
    const auto checksum = run::checksum_in_name(name);
    const auto damage = run::damage_of(file, checksum);
    print("{}: {}\n", !damage.empty() ? "bad" : checksum.digits.empty() ? "no checksum in its name" : "good", file.string());
    if (damage.empty()) continue;
    print("     {}; remove the file, and `trainer weights fetch` downloads it again\n", printable(damage));
    exit_code = ExitCode::kData;
  }
  print("{} in {}\n", counted(num_files, "file"), folder.string());
  return exit_code;
}

}  // namespace

ExitCode weights(const std::vector<std::string>& args) {
  CLI::App app("Shows, fetches and checks the published weights that model.weights can name.", "trainer weights");
  app.require_subcommand(1);
  std::vector<std::string> names;
  std::string mirror;
  const auto* list = app.add_subcommand("list", "show the networks that have published weights");
  auto* fetch = app.add_subcommand(
      "fetch",
      "download weights into the cache (weights/ in TRAINER_HOME, by default in ~/.cache/trainer), for example to copy this folder to "
      "hosts without internet access");
  fetch->add_option("names", names, "names of weights, such as resnet50 or resnet50:imagenet1k_v1, or URLs")->required()->type_name("NAME");
  fetch->add_option("--mirror", mirror, "the URL of a folder with the files, to use instead of torchvision's server")->type_name("URL");
  const auto* verify = app.add_subcommand("verify", "compare the files with the checksums in their names, and read those without one");
  cli::parse(app, args);
  if (list->parsed()) list_weights();
  if (fetch->parsed()) {
    const auto logger = make_console_logger();
    std::vector<run::WeightsSource> sources;
    for (const auto& name : names) sources.push_back(source_of(name, mirror));
    for (const auto& source : sources) print("{}\n", run::fetch_weights(source, *logger).string());
  }
  return verify->parsed() ? verify_weights() : ExitCode::kDone;
}

}  // namespace trainer::commands
