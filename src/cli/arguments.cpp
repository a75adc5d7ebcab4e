#include "cli/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <regex>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/standard_output.h"
#include "base/text.h"

namespace trainer::cli {
namespace {

constexpr const char* kConfig = "--config";

// Set by visit_definition().
const std::function<void(const CLI::App&)>* visitor = nullptr;

const CLI::App& selected_command(const CLI::App& app) {
  const auto subcommands = app.get_subcommands();
  return subcommands.empty() ? app : selected_command(*subcommands.back());
}

std::string full_name(const CLI::App& app, const CLI::App& command) {
  return &app == &command ? app.get_name() : app.get_name() + " " + command.get_name();
}

std::string did_you_mean(const std::string& name) { return name.empty() ? "" : fmt::format("; did you mean {}?", name); }

// `argument`: one that begins with "-" and is no option of `command`.
std::string explain_unknown_option(const CLI::App& command, const std::string& argument) {
  const auto name = argument.substr(0, argument.find('='));
  const auto bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  const bool takes_keys = command.get_option_no_throw("overrides") != nullptr;
  if (takes_keys && bare.find('.') != std::string::npos) {
    const auto key = argument.substr(argument.find(bare));
    return fmt::format("{} is not an option; keys of the experiment file are set without dashes: {}", name,
                       key == bare ? bare + "=VALUE" : key);
  }
  std::vector<std::string> names;
  for (const auto* option : command.get_options()) {
    for (const auto& long_name : option->get_lnames()) names.push_back("--" + long_name);
  }
  const auto nearest = nearest_name(name, names);
  const auto keys = nearest.empty() && takes_keys ? "; keys of the experiment file are set as key=value, such as training.epochs=3" : "";
  return fmt::format("{} is not an option{}{}", name, did_you_mean(nearest), keys);
}

std::string explain_missing_subcommand(const CLI::App& command, const std::vector<std::string>& unknown) {
  std::vector<std::string> names;
  for (const auto* subcommand : command.get_subcommands([](const CLI::App*) { return true; })) names.push_back(subcommand->get_name());
  const auto list = join(names, ", ");
  if (unknown.empty()) return fmt::format("a subcommand is required: one of {}", list);
  const auto nearest = nearest_name(unknown.front(), names);
  return fmt::format("\"{}\" is not a subcommand{}", unknown.front(),
                     nearest.empty() ? ", which are " + list : fmt::format("; did you mean \"{}\"?", nearest));
}

// CLI11's messages that are hard to read; others stay.
std::string reworded(std::string message) {
  static const std::array<std::pair<std::regex, const char*>, 5> kRules = {{
      {std::regex("([a-z]+) is required"), "the argument \"$1\" is missing"},
      {std::regex("Could not convert: (\\S+) = (.*)"), "$1: expected an integer, got $2"},
      {std::regex("(\\S+): 1 required (.*) missing"), "$1: its value is missing ($2)"},
      {std::regex("(\\S+): At Most (\\d+) required but received (\\d+)"), "$1: at most $2 expected, but $3 given"},
      {std::regex("(\\S+): At least (\\d+) required but received (\\d+)"), "$1: at least $2 expected, but $3 given"},
  }};
  for (const auto& [pattern, text] : kRules) {
    if (std::regex_match(message, pattern)) return std::regex_replace(message, pattern, text);
  }
  return message;
}

std::string explain(const CLI::App& app, const CLI::App& command, const CLI::ParseError& error, const std::vector<std::string>& args) {
  const auto unknown = app.remaining(/*recurse=*/true);
  const auto option = std::ranges::find_if(unknown, [](const std::string& argument) { return argument.starts_with("-"); });
  if (option != unknown.end()) return explain_unknown_option(command, *option);
  const bool needs_subcommand = command.get_require_subcommand_min() > 0 && command.get_subcommands().empty();
  if (needs_subcommand) return explain_missing_subcommand(command, unknown);
  const auto* config = command.get_option_no_throw(kConfig);
  const auto file = std::ranges::find_if(args, is_yaml_file);
  if (config != nullptr && config->count() == 0 && file != args.end()) {
    return fmt::format("{} is missing; did you mean {} {}?", kConfig, kConfig, *file);
  }
  return reworded(error.what());
}

std::string wrap_help_line(std::string line) {
  constexpr size_t kWidth = 79;
  // "  --run-dir DIR               folder of the run": the description begins after two or more spaces.
  const auto begin = line.find_first_not_of(' ');
  const auto gap = line.find("  ", begin);
  const auto indentation = gap == line.npos ? begin : line.find_first_not_of(' ', gap);
  std::string result;
  while (line.size() > kWidth) {
    const auto space = line.rfind(' ', kWidth);
    if (space == line.npos || space <= indentation) break;
    result += line.substr(0, space) + '\n';
    line = std::string(indentation, ' ') + line.substr(space + 1);
  }
  return result + line;
}

}  // namespace

void parse(CLI::App& app, std::vector<std::string> args) {
  if (visitor != nullptr) {
    (*visitor)(app);
    throw CLI::CallForHelp();
  }
  auto reversed = args;
  std::ranges::reverse(reversed);  // CLI11 expects them in reverse order
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    print_text(wrap_help(app.help()));
    throw;
  } catch (const CLI::ParseError& error) {
    const auto& command = selected_command(app);
    throw UsageError(fmt::format("{} (see `{} --help`)", explain(app, command, error, args), full_name(app, command)));
  }
}

void visit_definition(const std::function<void()>& run, const std::function<void(const CLI::App& app)>& visit) {
  visitor = &visit;
  try {
    run();
  } catch (const CLI::CallForHelp&) {
  }
  visitor = nullptr;
}

void add_experiment(CLI::App& app, config::ExperimentSource& source) {
  app.add_option(kConfig, source.file, "the experiment file (YAML); - : the standard input")->required()->type_name("FILE");
  app.add_option("overrides", source.overrides, "keys to set to other values than in the file, such as optimizer.lr=0.05")
      ->type_name("key=value");
}

void add_network_file(CLI::App& app, std::string& checkpoint, std::filesystem::path& config) {
  app.add_option("--checkpoint", checkpoint, "a checkpoint, or with --config a state_dict or safetensors file")
      ->required()
      ->type_name("FILE");
  app.add_option(kConfig, config, "the experiment file (YAML); default: the experiment that the checkpoint holds")->type_name("FILE");
}

void add_rank_flags(CLI::App& app, world::RankFlags& flags) {
  app.add_option("--rank", flags.rank, "number of this process among all, from 0; default: from the launcher's variables");
  app.add_option("--world-size,--world_size", flags.world_size, "number of processes");
  app.add_option("--local-rank,--local_rank", flags.local_rank, "number of this process on its host, from 0");
  app.add_option("--init-method,--init_method", flags.init_method, "where the processes meet: env://, tcp://HOST:PORT or file:///PATH")
      ->type_name("URL");
}

std::string wrap_help(const std::string& help) {
  std::istringstream lines(help);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += wrap_help_line(line) + '\n';
  return result;
}

void refuse_to_overwrite(const std::filesystem::path& input, const std::filesystem::path& output, std::string_view option) {
  std::error_code no_output;
  if (!std::filesystem::equivalent(input, output, no_output)) return;
  throw UsageError(
      fmt::format("{} {}: this is the file {}, which would be overwritten; give another name", option, output.string(), input.string()));
}

bool is_yaml_file(std::string_view argument) {
  return !argument.starts_with("-") && argument.find('=') == argument.npos && (argument.ends_with(".yaml") || argument.ends_with(".yml"));
}

}  // namespace trainer::cli
