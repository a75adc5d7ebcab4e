#include "cli/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <sstream>
#include <utility>

#include "base/standard_streams.h"
#include "base/text.h"
#include "trainer/error.h"

namespace trainer::cli {
namespace {

constexpr const char* kConfig = "--config";

// Set by visit_definition(); parse() then passes the command to this function instead of parsing.
const std::function<void(const CLI::App&)>* visitor = nullptr;

const CLI::App& selected_command(const CLI::App& app) {
  const auto subcommands = app.get_subcommands();
  return subcommands.empty() ? app : selected_command(*subcommands.back());
}

std::string full_name(const CLI::App& app, const CLI::App& command) {
  return &app == &command ? app.get_name() : app.get_name() + " " + command.get_name();
}

std::string did_you_mean(const std::string& name) { return name.empty() ? "" : fmt::format("; did you mean {}?", name); }

// `argument` begins with "-" and is not an option of `command`.
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
                     nearest.empty() ? "; choose one of " + list : fmt::format("; did you mean \"{}\"?", nearest));
}

// The text between `begin` and `end`, or nullopt if the text does not begin and end with them.
std::optional<std::string> between(std::string_view text, std::string_view begin, std::string_view end) {
  if (text.size() < begin.size() + end.size() || !text.starts_with(begin) || !text.ends_with(end)) return std::nullopt;
  return std::string(text.substr(begin.size(), text.size() - begin.size() - end.size()));
}

// Rewords CLI11's messages that are hard to read; returns others unchanged.
std::string reworded(const CLI::App& command, const std::string& message) {
  const auto argument = between(message, "", " is required");
  if (argument && !argument->starts_with('-')) return fmt::format("the argument \"{}\" is missing", *argument);
  if (const auto given = between(message, "Could not convert: ", "")) {
    constexpr std::string_view kEquals = " = ";
    const auto equals = given->find(kEquals);
    const auto option_name = given->substr(0, equals);
    const auto value = given->substr(equals + kEquals.size());
    const auto* option = command.get_option_no_throw(option_name);
    const bool is_flag = option != nullptr && option->get_expected_max() == 0;
    if (is_flag) return fmt::format("{} takes no value, got {}", option_name, value);
    // Only the range can be wrong, because accept_plain_numbers_only() has checked the format.
    return fmt::format("{}: {} is out of range", option_name, value);
  }
  const auto colon = std::min(message.find(": "), message.size());
  const auto name = message.substr(0, colon);
  const auto problem = std::string_view(message).substr(colon);
  if (const auto type = between(problem, ": 1 required ", " missing")) return fmt::format("{}: its value is missing ({})", name, *type);
  for (const auto& [begin, bound] : {std::pair(": At Most ", "at most"), std::pair(": At least ", "at least")}) {
    constexpr std::string_view kMiddle = " required but received ";
    const auto numbers = between(problem, begin, "");
    const auto middle = numbers ? numbers->find(kMiddle) : std::string::npos;
    if (middle == std::string::npos) continue;
    return fmt::format("{}: {} {} expected, but {} given", name, bound, numbers->substr(0, middle),
                       numbers->substr(middle + kMiddle.size()));
  }
  return message;
}

template <class T>
bool is_number(const std::string& text) {
  const auto value = parse_number<T>(text);
  return value && std::isfinite(static_cast<double>(*value));
}

class HelpFormatter : public CLI::Formatter {
 public:
  // CLI11 would write "runs(1x)" for an argument that takes 1 to 100 values.
  std::string make_option_usage(const CLI::Option* option) const override {
    const auto text = option->get_name(/*positional=*/true) + (option->get_expected_max() > 1 ? "..." : "");
    return option->get_required() ? text : '[' + text + ']';
  }
};

// Example command lines, one per line, for the help of a command ("eval").
constexpr std::array<std::pair<std::string_view, std::string_view>, 23> kExamples = {{
    {"train",
     "trainer --config configs/quickstart.yaml\n"
     "trainer --config my.yaml --run-dir runs/slow optimizer.lr=0.01"},
    {"validate", "trainer validate --config my.yaml --world-size 8"},
    {"eval",
     "trainer eval --checkpoint runs/my_run\n"
     "trainer eval --checkpoint runs/my_run --data data/test"},
    {"predict",
     "trainer predict --checkpoint runs/my_run photo.jpg folder/\n"
     "find . -name '*.jpg' -print0 | trainer predict --checkpoint best.pt -0 -"},
    {"calibrate",
     "trainer calibrate --checkpoint runs/my_run\n"
     "trainer calibrate --checkpoint runs/my_run --class defect --miss-at-most 1%"},
    {"launch",
     "trainer launch --config my.yaml\n"
     "trainer launch --nproc-per-node 4 --config my.yaml training.epochs=5"},
    {"crossval", "trainer crossval --config my.yaml --folds 5"},
    {"sweep",
     "trainer sweep --config my.yaml optimizer.lr=0.1,0.01 seed=1,2,3\n"
     "trainer sweep --config my.yaml 'optimizer={name: adamw},{name: sgd, lr: 0.1}'"},
    {"init", "trainer init --data data/my_images --output my.yaml"},
    {"config",
     "trainer config reference optimizer.sgd\n"
     "trainer config show --config my.yaml --origin"},
    {"data",
     "trainer data check --config my.yaml\n"
     "trainer data audit --config my.yaml --page audit.html\n"
     "trainer data pack --config my.yaml --output data/packed"},
    {"weights", "trainer weights list\ntrainer weights fetch resnet50"},
    {"checkpoint",
     "trainer checkpoint info runs/my_run\n"
     "trainer checkpoint average --output mean.pt a.pt b.pt"},
    {"export",
     "trainer export --checkpoint runs/my_run --output network.onnx\n"
     "trainer export --checkpoint runs/my_run --format state_dict --output w.pt"},
    {"verify-export",
     "trainer verify-export network.onnx --checkpoint runs/my_run\n"
     "trainer verify-export network.onnx --checkpoint best.pt --data photos/ --preprocess opencv"},
    {"verify-resume", "trainer verify-resume --config my.yaml --steps 20"},
    {"lr-find", "trainer lr-find --config my.yaml"},
    {"report",
     "trainer report runs/a runs/b --output report.html\n"
     "trainer report --live runs/a"},
    {"runs", "trainer runs\ntrainer runs --columns optimizer.lr,seed --sort metric"},
    {"compare", "trainer compare runs/a runs/b"},
    {"replay", "trainer replay runs/my_run/non_finite/step_12 amp.enabled=false"},
    {"doctor", "trainer doctor --output-dir /data/runs"},
    {"list", "trainer list\ntrainer list models"},
}};

std::string_view examples_of(std::string_view command) {
  const auto* found = std::ranges::find(kExamples, command, [](const auto& entry) { return entry.first; });
  return found == kExamples.end() ? std::string_view() : found->second;
}

std::string help_of(const CLI::App& app) {
  auto text = wrap_help(app.help());
  std::istringstream examples(std::string(examples_of(app.get_name().substr(std::string_view("trainer ").size()))));
  while (text.ends_with("\n\n")) text.pop_back();
  text += "\nExamples:\n";
  for (std::string line; std::getline(examples, line);) text += "  " + line + '\n';
  return text;
}

// CLI11 would also accept hexadecimal numbers, truth values, nan and inf.
void accept_plain_numbers_only(CLI::App& app) {
  const auto check = [](const char* expected, bool (*is_good)(const std::string&)) {
    return CLI::Validator(
        [expected, is_good](const std::string& text) { return is_good(text) ? "" : fmt::format("expected {}, got {}", expected, text); },
        "");
  };
  for (auto* option : app.get_options()) {
    const auto type = option->get_type_name();
    // A transform runs before the option's own checks.
    if (type.starts_with("INT")) option->transform(check("an integer", is_number<int64_t>));
    if (type.starts_with("FLOAT")) option->transform(check("a finite number", is_number<double>));
  }
}

void prepare(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormatter>());
  accept_plain_numbers_only(app);
  for (auto* subcommand : app.get_subcommands([](const CLI::App*) { return true; })) prepare(*subcommand);
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
  return reworded(command, error.what());
}

std::string wrap_help_line(std::string line) {
  constexpr size_t kWidth = 79;
  // The column where CLI11's descriptions begin; after a longer option name they begin after one space.
  constexpr size_t kColumn = 30;
  // "  --run-dir DIR               the run directory": the description begins after two or more spaces.
  const auto begin = line.find_first_not_of(' ');
  const auto gap = line.find("  ", begin);
  const bool has_long_name = line.starts_with("  -") && line.size() > kColumn && gap >= kColumn && line[kColumn - 1] == ' ';
  const auto indentation = has_long_name ? kColumn : gap == line.npos ? begin : line.find_first_not_of(' ', gap);
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
  prepare(app);
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    print_text(help_of(app));
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
  app.add_option(kConfig, source.file, "the experiment file (YAML), or - for the standard input")->required()->type_name("FILE");
  app.add_option("overrides", source.overrides, "overrides of keys of the file, such as optimizer.lr=0.05")->type_name("key=value");
}

void add_network_file(CLI::App& app, std::string& checkpoint, std::filesystem::path& config) {
  app.add_option("--checkpoint", checkpoint,
                 "a checkpoint, a run directory (its best.pt is used), or with --config a state_dict or safetensors file")
      ->required()
      ->type_name("FILE|DIR");
  app.add_option(kConfig, config, "the experiment file (YAML); default: the experiment in the checkpoint")->type_name("FILE");
}

void add_checkpoint(CLI::App& app, std::string& checkpoint) {
  app.add_option("--checkpoint", checkpoint, "the checkpoint, or a run directory, whose best.pt is used")
      ->required()
      ->type_name("FILE|DIR");
}

void add_tta(CLI::App& app, std::optional<task::TestTimeAugmentation>& tta) {
  std::vector<std::string> names;
  for (const auto& [name, value] : config::kTtaChoices) names.push_back(name);
  const auto set = [&tta](const std::string& given) {
    tta = std::ranges::find(config::kTtaChoices, given, [](const auto& choice) { return choice.first; })->second;
  };
  app.add_option_function<std::string>("--tta", set, "test-time augmentation; default: validation.tta of the experiment")
      ->check(CLI::IsMember(names));
}

void add_rank_flags(CLI::App& app, world::RankFlags& flags) {
  app.add_option("--rank", flags.rank,
                 "rank of this process among all processes, from 0; default: from the launcher's environment variables");
  app.add_option("--world-size,--world_size", flags.world_size, "number of processes");
  app.add_option("--local-rank,--local_rank", flags.local_rank, "rank of this process on its host, from 0");
  app.add_option("--init-method,--init_method", flags.init_method,
                 "rendezvous address of the processes: env://, tcp://HOST:PORT or file:///PATH")
      ->type_name("URL");
}

std::string wrap_help(const std::string& help) {
  std::istringstream lines(help);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += wrap_help_line(line) + '\n';
  return result;
}

bool is_yaml_file(std::string_view argument) {
  return !argument.starts_with("-") && argument.find('=') == argument.npos && (argument.ends_with(".yaml") || argument.ends_with(".yml"));
}

}  // namespace trainer::cli
