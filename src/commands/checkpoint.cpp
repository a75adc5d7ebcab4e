#include "trainer/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/text.h"
#include "checkpoint/pytorch_file.h"
#include "checkpoint/state/tree_differences.h"
#include "checkpoint/store.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "commands/run_end.h"
#include "config/yaml.h"
#include "distributed/first_line.h"
#include "run/network/network_file.h"
#include "run/recipe/registries.h"
#include "trainer/state.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;

std::string describe(const state::Tree& tree) {
  const auto tensors = state::tensors_of(tree);
  int64_t num_values = 0;
  size_t num_bytes = 0;
  for (const auto& tensor : tensors) {
    num_values += tensor.numel();
    num_bytes += tensor.nbytes();
  }
  return fmt::format("{}, {}, {}", counted(tensors.size(), "tensor"), counted(num_values, "value"), counted(num_bytes, "byte"));
}

void print_item(const state::Item& item) {
  const auto text = [](const auto& value) -> std::string {
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, std::monostate>) {
      return "none";
    } else if constexpr (std::is_arithmetic_v<Value>) {
      return fmt::format("{}", value);
    } else if constexpr (std::is_same_v<Value, std::string>) {
      return value.find('\n') == value.npos ? value : "text of several lines";
    } else {
      return describe(value);
    }
  };
  print("{:<20} {}\n", printable_line(state::to_string(item.key)), std::visit(text, item.value.value()));
}

void print_info(const fs::path& file) {
  const auto tree = checkpoint::load(file);
  const auto* dict = std::get_if<state::Dict>(&tree.value());
  print("{}: {}\n", file.string(), describe(tree));
  if (dict == nullptr) return;
  for (const auto& item : dict->items()) print_item(item);
}

// Prints a line for each file.
ExitCode verify_files(const std::vector<fs::path>& files) {
  auto exit_code = ExitCode::kDone;
  for (const auto& given : files) {
    auto file = given;
    try {
      file = checkpoint::checkpoint_of(given);
      print("good: {}, {}\n", file.string(), describe(checkpoint::load(file)));
    } catch (const std::exception& error) {
      const bool names_file = dynamic_cast<const Error*>(&error) != nullptr;
      print("bad: {}\n", names_file ? error.what() : fmt::format("{}: {}", file.string(), distributed::first_line(error)));
      exit_code = ExitCode::kCheckpoint;
    }
  }
  return exit_code;
}

// The model of a checkpoint, or a bare state_dict itself.
state::Tree model_of(const state::Tree& tree) {
  const auto* dict = std::get_if<state::Dict>(&tree.value());
  const auto* model = dict != nullptr ? dict->find("model") : nullptr;
  return model != nullptr ? *model : tree;
}

// The mean of the models. Integers, which are counts, are taken from the last model.
state::Dict mean_of(const std::vector<state::View>& models) {
  state::Dict means;
  for (const auto& key : models.front().keys()) {
    auto value = torch::empty_like(models.front().at(key).tensor());
    auto sum = torch::zeros(value.sizes(), torch::kFloat64);
    for (const auto& model : models) {
      model.at(key).copy_to(value);
      if (value.is_floating_point()) sum += value;
    }
    means.add(key, value.is_floating_point() ? sum.div_(static_cast<double>(models.size())).to(value.scalar_type()) : value);
  }
  return means;
}

void write_average(const std::vector<fs::path>& files, const fs::path& output) {
  refuse_to_overwrite(output, files);
  std::vector<state::Tree> models;
  std::optional<std::string> config;
  // Keys of a regression: the names of the targets, and their normalisation.
  constexpr std::array kOfTargets = {"target_names", "target_summary"};
  state::Dict of_targets;
  for (const auto& path : files) {
    const auto tree = checkpoint::load(path);
    state::Dict here;
    for (const auto* key : kOfTargets) {
      const auto* dict = std::get_if<state::Dict>(&tree.value());
      if (const auto* value = dict == nullptr ? nullptr : dict->find(key)) here.add(key, *value);
    }
    if (models.empty()) of_targets = here;
    if (!state::differences(of_targets, here).empty()) {
      throw UsageError(
          fmt::format("{}: the names or the normalisation of the regression targets differ from those in {}, so an average of the networks "
                      "is meaningless; average checkpoints of one run",
                      path.string(), files[0].string()));
    }
    if (const auto text = state::View(tree, path.string()).find("config")) config = text->text();
    models.push_back(model_of(tree));
  }
  std::vector<state::View> views;
  for (size_t i = 0; i < files.size(); ++i) {
    views.emplace_back(models[i], files[i].string());
    if (views[i].keys().size() != views[0].keys().size()) {
      views[i].fail(fmt::format("does not have the same tensors as {}; average checkpoints of one network", files[0].string()));
    }
  }
  state::Dict average;
  average.add("model", mean_of(views));
  if (config) average.add("config", *config);
  for (const auto* key : kOfTargets) {
    if (const auto* value = of_targets.find(key)) average.add(key, *value);
  }
  OutputFile target(output);
  checkpoint::write_pytorch_file(average, target);
  target.commit();
}

using Json = nlohmann::ordered_json;

Json properties(const std::vector<std::pair<const char*, Json>>& values) {
  auto list = Json::array();
  for (const auto& [name, value] : values) {
    if (!value.is_null())
      list.push_back({{"name", std::string("trainer:") + name}, {"value", value.is_string() ? value.get<std::string>() : value.dump()}});
  }
  return list;
}

Json parsed_if_there(const fs::path& file) {
  std::error_code unreadable;
  return fs::exists(file, unreadable) ? Json::parse(read_file(file)) : Json();
}

// The metrics of the evaluation after the checkpoint's last step, from the files of its run; null if there are none.
Json metrics_of(const fs::path& run, int64_t step) {
  for (const auto* name : {"evaluation.json", "best_evaluation.json"}) {
    const auto evaluation = parsed_if_there(run / name);
    if (evaluation.is_object() && evaluation.value("step", int64_t{-1}) == step) return evaluation.value("metrics", Json());
  }
  return {};
}

// A machine-learning bill of materials in the format CycloneDX 1.6: what the model was made of. What only the files of the run have is left
// out if they are not there.
Json bill_of_materials(const fs::path& path) {
  const network::NetworkFile file(path);
  const auto experiment = file.load_experiment({}, recipe::registries_without_check());
  const auto about = Json::parse(network::describe_network(experiment, file, false, std::nullopt));
  const state::View checkpoint(file.tree(), path.string());
  const auto text = checkpoint.at("config").text();
  const auto run = path.parent_path().parent_path();
  const auto environment = parsed_if_there(run / "environment.json");
  const auto from = [](const Json& json, const char* key) { return json.is_object() ? json.value(key, Json()) : Json(); };
  const auto version = checkpoint.at("trainer_version").text();
  auto components = Json::array(
      {{{"type", "data"},
        {"bom-ref", "data"},
        {"name", experiment.dataset.component.name},
        {"data", Json::array({{{"type", "dataset"}, {"name", experiment.dataset.component.name}}})},
        {"properties", properties({{"num_train", checkpoint.at("num_train").integer()},
                                   {"training_samples", from(environment, "training_samples")},
                                   {"validation_samples", from(environment, "validation_samples")}})}},
       {{"type", "data"},
        {"bom-ref", "configuration"},
        {"name", "config.yaml"},
        {"data", Json::array({{{"type", "configuration"},
                               {"contents", {{"attachment", {{"contentType", "application/yaml"}, {"content", text}}}}}}})}},
       {{"type", "application"},
        {"bom-ref", "trainer"},
        {"name", "trainer"},
        {"version", version},
        {"properties", properties({{"git_revision", from(environment, "git_revision")}, {"compiler", from(environment, "compiler")}})}}});
  if (const auto libtorch = from(environment, "libtorch_version"); !libtorch.is_null()) {
    components.push_back({{"type", "library"}, {"bom-ref", "libtorch"}, {"name", "LibTorch"}, {"version", libtorch}});
  }
  const auto configuration = config::parse_yaml(text, path.string());
  for (const auto* key : {"weights", "init_from"}) {
    const auto* start = configuration.find("model")->value.find(key);
    if (start == nullptr || start->value.text.empty()) continue;
    components.push_back(
        {{"type", "machine-learning-model"}, {"bom-ref", key}, {"name", start->value.text}, {"description", "initial weights"}});
  }
  auto used = Json::array();
  for (const auto& component : components) used.push_back(component["bom-ref"]);
  Json card = {{"modelParameters",
                {{"approach", {{"type", "supervised"}}},
                 {"task", experiment.task.component.name},
                 {"modelArchitecture", experiment.model.component.name},
                 {"datasets", Json::array({{{"ref", "data"}}})}}}};
  const auto progress = file.progress();
  auto& measured = card["quantitativeAnalysis"]["performanceMetrics"] = Json::array();
  const auto metrics = metrics_of(run, progress ? progress->step : 0);
  for (const auto& [name, value] : metrics.items()) {
    measured.push_back({{"type", name}, {"value", value.dump()}, {"slice", "validation"}});
  }
  return {{"$schema", "http://cyclonedx.org/schema/bom-1.6.schema.json"},
          {"bomFormat", "CycloneDX"},
          {"specVersion", "1.6"},
          {"version", 1},
          {"metadata",
           {{"component",
             {{"type", "machine-learning-model"},
              {"bom-ref", "model"},
              {"name", path.filename().string()},
              {"hashes", Json::array({{{"alg", "SHA-256"}, {"content", about["checkpoint_sha256"]}}})},
              {"modelCard", card},
              {"properties", properties({{"class_names", about["class_names"]},
                                         {"input_shape", about["input_shape"]},
                                         {"step", progress ? Json(progress->step) : Json()},
                                         {"world_size", from(environment, "world_size")}})}}}}},
          {"components", components},
          {"dependencies", Json::array({{{"ref", "model"}, {"dependsOn", used}}})}};
}

}  // namespace

ExitCode checkpoint(const std::vector<std::string>& args) {
  CLI::App app("Shows, checks, compares and averages checkpoints, state_dicts and safetensors files.", "trainer checkpoint");
  app.require_subcommand(1);
  std::vector<fs::path> files;
  fs::path output;
  const auto add = [&](const char* name, const char* doc, int least, int most) {
    auto* command = app.add_subcommand(name, doc);
    command->add_option("files", files, "checkpoints, run directories (best.pt is used), state_dicts or safetensors files")
        ->required()
        ->expected(least, most)
        ->type_name("FILE|DIR");
    return command;
  };
  constexpr int kMany = 1'000'000;
  const auto* info = add("info", "show the content of a file", 1, 1);
  const auto* verify = add("verify", "check that files are complete and undamaged", 1, kMany);
  const auto* diff = add("diff", "show the differences between two files; the exit code is 1 if there are any", 2, 2);
  auto* average = add("average", "write the mean of several models", 1, kMany);
  average->add_option("--output", output, "the file to write")->required()->type_name("FILE");
  auto* bill = add("bill-of-materials", "write what a model was made of: weights, data, configuration, versions (CycloneDX 1.6)", 1, 1);
  bill->add_option("--output", output, "the file to write; default: beside the checkpoint, such as best.cdx.json")->type_name("FILE");
  cli::parse(app, args);
  if (verify->parsed()) return verify_files(files);
  std::ranges::transform(files, files.begin(), checkpoint::checkpoint_of);
  if (info->parsed()) print_info(files.front());
  if (average->parsed()) write_average(files, output);
  if (bill->parsed()) {
    if (output.empty()) output = fs::path(files.front()).replace_extension(".cdx.json");
    refuse_to_overwrite(output, files);
    write_file_atomically(output, bill_of_materials(files.front()).dump(1) + "\n");
    print("wrote {}\n", output.string());
  }
  if (!diff->parsed()) return ExitCode::kDone;
  const auto differences = state::differences(checkpoint::load(files[0]), checkpoint::load(files[1]));
  for (const auto& difference : differences) print("{}\n", difference);
  return differences.empty() ? ExitCode::kDone : ExitCode::kFailure;
}

}  // namespace trainer::commands
