#include "commands/command.h"

#include <gmock/gmock.h>

#include <CLI/Error.hpp>
#include <sstream>

#include "cli/arguments.h"

namespace trainer::commands {
namespace {

using ::testing::HasSubstr;

// The error message for a wrong command line, and the exit code that main returns for it.
struct Refusal {
  std::string message;
  ExitCode exit_code = ExitCode::kDone;
};

Refusal refusal_of(const std::vector<std::string>& args) {
  try {
    return {"no error", run(args)};
  } catch (const CLI::ParseError& error) {
    return {error.what(), ExitCode::kUsage};
  } catch (const Error& error) {
    return {error.what(), error.exit_code()};
  }
}

TEST(Commands, RefuseWrongCommandLines) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"trian"}, "\"trian\" is not a command; did you mean \"train\"?"},
      {{"xyzzy"}, "\"xyzzy\" is not a command; `trainer --help` lists the commands"},
      {{"my.yaml"}, "\"my.yaml\" is not a command; did you mean --config my.yaml?"},
      {{"hepl"}, "\"hepl\" is not a command; did you mean \"help\"?"},
      {{"help", "trian"}, "\"trian\" is not a command; did you mean \"train\"?"},
      {{"train"}, "--config is required (see `trainer train --help`)"},
      {{"train", "my.yaml"}, "--config is missing; did you mean --config my.yaml? (see `trainer train --help`)"},
      {{"config", "show", "my.yml"}, "--config is missing; did you mean --config my.yml? (see `trainer config show --help`)"},
      {{"--confg", "a.yaml"}, "--confg is not an option; did you mean --config? (see `trainer train --help`)"},
      {{"-c", "a.yaml"}, "-c is not an option; keys of the experiment file are set as key=value, such as training.epochs=3 (see"},
      {{"--config", "a.yaml", "--training.epochs=3"},
       "--training.epochs is not an option; keys of the experiment file are set without dashes: training.epochs=3 (see"},
      {{"--config", "a.yaml", "--optimizer.lr", "1"}, "set without dashes: optimizer.lr=VALUE (see"},
      {{"--config", "a.yaml", "--progres", "bars", "--rank", "x"}, "--progres is not an option; did you mean --progress?"},
      {{"export", "--fromat", "onnx"}, "--fromat is not an option; did you mean --format? (see `trainer export --help`)"},
      {{"--config"}, "--config: its value is missing (FILE)"},
      {{"--config", "a.yaml", "--config", "b.yaml"}, "--config: at most 1 expected, but 2 given"},
      {{"--config", "a.yaml", "--progress", "fancy"}, "--progress: fancy not in {bar,plain,none}"},
      {{"--config", "a.yaml", "--rank", "one"}, "--rank: expected an integer, got one"},
      {{"--config", "a.yaml", "--epochs", "3"}, "--epochs is not an option; keys of the experiment file are set as key=value"},
      {{"verify-resume", "--config", "a.yaml", "--steps", "1"}, "--steps"},
      {{"validate", "--config", "a.yaml", "--world-size", "0"}, "--world-size"},
      {{"lr-find", "--config", "a.yaml", "--steps", "1"}, "--steps"},
      {{"lr-find", "--config", "a.yaml", "--min-lr", "0"}, "--min-lr"},
      {{"lr-find", "--config", "a.yaml", "--min-lr", "nan"}, "--min-lr: expected a finite number, got nan"},
      {{"lr-find", "--config", "a.yaml", "--max-lr", "inf"}, "--max-lr: expected a finite number, got inf"},
      {{"lr-find", "--config", "a.yaml", "--max-lr", "1e999"}, "--max-lr: expected a finite number, got 1e999"},
      {{"lr-find", "--config", "a.yaml", "--max-lr", "0x10"}, "--max-lr: expected a finite number, got 0x10"},
      {{"train", "--config", "a.yaml", "--rank", "true"}, "--rank: expected an integer, got true"},
      {{"runs", "--json=abc"}, "--json takes no value, got abc (see `trainer runs --help`)"},
      {{"launch", "--max-restarts", "99999999999", "--config", "a.yaml"}, "--max-restarts: 99999999999 is out of range"},
      {{"predict", "--checkpoint", "a.pt", "a.png", "--top-k", "99999999999999999999"}, "--top-k"},
      {{"data", "check", "--config", "a.yaml", "--threads", "nan"}, "--threads"},
      {{"launch", "--max-restarts", "inf", "--config", "a.yaml"}, "--max-restarts"},
      {{"predict", "--checkpoint", "a.pt", "-0", "a.png"}, "--null has no effect without a list on stdin; add - to the paths"},
      {{"export", "--checkpoint", "a.pt", "--output", "a.pt"},
       "--output a.pt: .pt does not determine the format; add --format state_dict or torchscript"},
      {{"export", "--checkpoint", "a.pt", "--output", "a"}, "a name without extension does not determine the format; add --format"},
      {{"export", "--checkpoint", "a.pt", "--format", "onnx", "--output", "a.safetensors"},
       "--format onnx does not fit --output a.safetensors: .safetensors is for safetensors; change one of them"},
      {{"lr-find", "--config", "a.yaml", "--min-lr", "1", "--max-lr", "0.5"},
       "--min-lr 1 is not less than --max-lr 0.5; lower --min-lr, or raise --max-lr"},
      {{"eval"}, "--checkpoint is required (see `trainer eval --help`)"},
      {{"eval", "--checkpoint", "a.pt", "--split", "all"}, "--split: all not in {validation,train,test}"},
      {{"eval", "--checkpoint", "a.pt", "--tta", "turn"}, "--tta: turn not in {none,flip,flip_and_shift}"},
      {{"predict", "a.png"}, "--checkpoint is required (see `trainer predict --help`)"},
      {{"predict", "--checkpoint", "a.pt"}, "the argument \"paths\" is missing (see `trainer predict --help`)"},
      {{"replay"}, "the argument \"folder\" is missing (see `trainer replay --help`)"},
      {{"export", "--checkpoint", "a.pt", "--format", "tflite", "--output", "a"},
       "--format: tflite not in {state_dict,safetensors,torchscript,onnx}"},
      {{"checkpoint"}, "a subcommand is required: one of info, verify, diff, average, bill-of-materials (see `trainer checkpoint --help`)"},
      {{"checkpoint", "inf", "a.pt"}, "\"inf\" is not a subcommand; did you mean \"info\"? (see `trainer checkpoint --help`)"},
      {{"config", "print"}, "\"print\" is not a subcommand; choose one of reference, show, schema (see"},
      {{"checkpoint", "diff", "a.pt"}, "files: at least 2 expected, but 1 given (see `trainer checkpoint diff --help`)"},
      {{"checkpoint", "average", "a.pt"}, "--output is required"},
      {{"list", "networks"},
       "networks not in {models,layers,datasets,transforms,batch_transforms,samplers,optimizers,lr_schedulers,tasks,losses,sinks}"},
      {{"data", "show", "--config", "a.yaml", "--output", "a.png", "--count", "0"}, "--count"},
      {{"data", "pack", "--config", "a.yaml"}, "--output is required"},
      {{"data", "pack", "--config", "a.yaml", "--output", "a", "--resize", "0"}, "--resize"},
      {{"launch"}, "trainer launch: nothing to start; add --config FILE, or a command with its arguments"},
      {{"launch", "--nproc-per-node"}, "--nproc-per-node"},
      {{"launch", "--nnodes", "2", "--node-rank", "2", "--config", "a.yaml"},
       "--node-rank 2 with --nnodes 2: hosts are numbered from 0, so the last one is 1; correct one of the two options"},
      {{"launch", "--nnodes", "100000", "--nproc-per-node", "1024", "--master-addr", "h", "--master-port", "1", "--config", "a.yaml"},
       "--nnodes 100000 with 1024 processes each: at most 100000 ranks are possible; use fewer hosts or processes"},
      {{"launch", "--nnodes", "2", "--config", "a.yaml"},
       "--nnodes 2 needs --master-addr and --master-port: the address and port of host 0, the same on every host"},
      {{"launch", "--nnodes", "2:4", "--config", "a.yaml"},
       "--nnodes 2:4: this launcher needs a fixed number of hosts; if the number varies, start the program with torchrun --nnodes 2:4"},
      {{"launch", "--nnodes", "0", "--config", "a.yaml"}, "--nnodes 0: expected the number of hosts, 1 or more"},
      {{"launch", "--config", "a.yaml", "--nnodes", "2"}, "--nnodes is an option of the launcher; put it before --config"},
      {{"launch", "--master-port", "70000", "--config", "a.yaml"}, "--master-port"},
      {{"launch", "--nproc-per-node", "1", "--config", "-"}, "--config -: the processes of a launcher cannot share the standard input"},
      {{"init", "--data", "/absent"}, "--data /absent: there is no such file or folder; correct the path"},
      {{"init", "--output", "/"}, "/ exists already and is kept; name another file with --output"},
  };
  for (const auto& [args, message] : cases) {
    const auto refusal = refusal_of(args);
    EXPECT_THAT(refusal.message, HasSubstr(message)) << args.front();
    EXPECT_EQ(refusal.exit_code, ExitCode::kUsage) << message;
  }
}

// Returns the output of a command line that requests help.
std::string help_of(const std::vector<std::string>& args) {
  ::testing::internal::CaptureStdout();
  try {
    EXPECT_EQ(run(args), ExitCode::kDone);
  } catch (const CLI::CallForHelp&) {
  }
  return ::testing::internal::GetCapturedStdout();
}

// The examples in a command's help use only options that this help, the subcommand's help or, for launch, the help of train lists.
TEST(Commands, ExamplesHaveTheOptionsOfTheirCommand) {
  for (const auto& command : all_commands()) {
    const auto text = help_of({command.name, "--help"});
    const auto begin = text.find("\nExamples:\n");
    ASSERT_NE(begin, text.npos) << command.name;
    std::istringstream lines(text.substr(begin + 11));
    std::string line;
    ASSERT_TRUE(std::getline(lines, line)) << command.name;
    do {
      EXPECT_THAT(line, HasSubstr("trainer ")) << command.name;
      std::istringstream words(line.substr(line.find("trainer ") + 8));
      std::string first, second;
      words >> first >> second;
      auto known = text + (std::string(command.name) == "launch" ? help_of({"train", "--help"}) : "");
      if (!second.starts_with("-") && text.find("Subcommands:") != text.npos) known += help_of({first, second, "--help"});
      std::istringstream all_words(line.substr(line.find("trainer ")));
      for (std::string word; all_words >> word;) {
        if (!word.starts_with("-") || word == "-") continue;
        EXPECT_THAT(known.substr(0, known.rfind("\nExamples:")), HasSubstr(word)) << line;
      }
    } while (std::getline(lines, line));
  }
}

TEST(Commands, PrintTheirHelp) {
  for (const std::string command : {"train",
                                    "validate",
                                    "eval",
                                    "predict",
                                    "launch",
                                    "init",
                                    "config",
                                    "config show",
                                    "config reference",
                                    "data",
                                    "data show",
                                    "data pack",
                                    "weights",
                                    "weights fetch",
                                    "checkpoint",
                                    "checkpoint average",
                                    "export",
                                    "verify-resume",
                                    "lr-find",
                                    "report",
                                    "runs",
                                    "compare",
                                    "replay",
                                    "doctor",
                                    "list"}) {
    std::vector<std::string> args;
    std::istringstream words(command);
    for (std::string word; words >> word;) args.push_back(word);
    args.emplace_back("--help");
    const auto text = help_of(args);
    EXPECT_THAT(text, HasSubstr("Usage: trainer " + command));
    args.pop_back();
    args.insert(args.begin(), "help");
    EXPECT_EQ(help_of(args), text);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 79U) << line;
  }
  const auto text = help_of({"--help"});
  EXPECT_THAT(text, HasSubstr("repeat a saved step whose loss or gradients were not finite,"));
  EXPECT_EQ(help_of({"help"}), text);
  EXPECT_EQ(help_of({"-h"}), text);
}

TEST(Commands, TheHelpNamesAllSubcommands) {
  size_t num_subcommands = 0;
  for (const auto& command : all_commands()) {
    cli::visit_definition([&] { command.run({}); },
                          [&](const CLI::App& app) {
                            for (const auto* subcommand : app.get_subcommands([](const CLI::App*) { return true; })) {
                              EXPECT_THAT(command.doc, HasSubstr(subcommand->get_name())) << command.name;
                              ++num_subcommands;
                            }
                          });
  }
  EXPECT_GE(num_subcommands, 15U);
}

TEST(Commands, DescriptionsInTheHelpAreAColumn) {
  EXPECT_THAT(help_of({"train", "--help"}), HasSubstr("\n  --resume auto|none|FILE|DIR auto: resume from the newest complete checkpoint\n"
                                                      "                              in the run directory"));
  EXPECT_THAT(help_of({"report", "--help"}), HasSubstr("\nUsage: trainer report [OPTIONS] runs...\n"));
  EXPECT_THAT(help_of({"compare", "--help"}), HasSubstr("\nUsage: trainer compare [OPTIONS] runs...\n"));
}

TEST(Commands, ListWithoutAFamilyNamesAll) {
  const auto text = help_of({"list"});
  EXPECT_THAT(text, HasSubstr("\noptimizers        sgd, adam"));
  EXPECT_THAT(text, HasSubstr("\n`trainer list FAMILY` describes each of them.\n"));
}

TEST(WrapHelp, TheRestOfALineIsIndentedLikeItsDescription) {
  EXPECT_EQ(cli::wrap_help("short\n\n  --run-dir DIR     one two three four five six seven eight nine ten eleven twelve\n"),
            "short\n\n"
            "  --run-dir DIR     one two three four five six seven eight nine ten eleven\n"
            "                    twelve\n");
  EXPECT_EQ(cli::wrap_help("one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen\n"),
            "one two three four five six seven eight nine ten eleven twelve thirteen\n"
            "fourteen fifteen\n");
  const std::string word(100, 'x');
  EXPECT_EQ(cli::wrap_help(word + "\n"), word + "\n");
}

}  // namespace
}  // namespace trainer::commands
