#include <gmock/gmock.h>

#include "cli/completion/definition.h"

namespace trainer::completion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A command with an option of each kind, and one with subcommands.
Program example() {
  std::string text;
  bool flag = false;
  std::vector<std::string> several;
  CLI::App train("Trains.", "trainer train");
  train.add_option("--config", text, "the experiment's file")->required()->type_name("FILE");
  train.add_option("--resume", text, "where to [re]start: auto or none")->type_name("auto|none|FILE");
  train.add_option("--progress", text, "how")->check(CLI::IsMember({"bar", "plain"}));
  train.add_option("--local-rank,--local_rank", text, "a number");
  train.add_flag("--json", flag, "as JSON");
  train.add_option("--internal", text)->group("");
  train.add_option("overrides", several, "keys")->type_name("key=value");
  CLI::App checkpoint("Shows.", "trainer checkpoint");
  checkpoint.add_subcommand("diff", "compare two")->add_option("files", several, "the files")->required()->type_name("FILE");
  Program program{.version = "1.2", .commands = read_commands(train, "train", "train a network"), .keys = {}};
  for (auto& command : read_commands(checkpoint, "checkpoint", "show checkpoints")) program.commands.push_back(command);
  program.keys = {{"optimizer.name", "Which.", {"sgd", "adam"}, false}, {"output_dir", "Where.", {}, true}, {"seed", "", {}, false}};
  return program;
}

TEST(Definition, ReadsTheOptionsOfCommands) {
  const auto program = example();
  ASSERT_EQ(program.commands.size(), 3);
  const auto& train = program.commands[0];
  EXPECT_TRUE(train.takes_keys);
  ASSERT_EQ(train.arguments.size(), 7);
  const auto by_name = [&](const std::string& name) {
    for (const auto& argument : train.arguments) {
      if (!argument.names.empty() && argument.names.back() == name) return argument;
    }
    return Argument{};
  };
  EXPECT_TRUE(by_name("--config").is_required);
  EXPECT_TRUE(by_name("--config").takes_path);
  EXPECT_THAT(by_name("--resume").values, ElementsAre("auto", "none"));
  EXPECT_TRUE(by_name("--resume").takes_path);
  EXPECT_THAT(by_name("--progress").values, ElementsAre("bar", "plain"));
  EXPECT_EQ(by_name("--progress").placeholder, "TEXT");
  EXPECT_THAT(by_name("--local-rank").names, ElementsAre("--local-rank"));
  EXPECT_EQ(by_name("--json").placeholder, "");
  EXPECT_THAT(by_name("--help").names, ElementsAre("-h", "--help"));
  EXPECT_THAT(by_name("--internal").names, ElementsAre());
  EXPECT_THAT(program.commands[1].subcommands, ElementsAre("diff"));
  EXPECT_EQ(program.commands[2].name, "checkpoint diff");
  EXPECT_TRUE(program.commands[2].arguments.back().may_repeat);
}

TEST(Completion, EscapesTextForEachShell) {
  const auto program = example();
  EXPECT_THAT(zsh_completion(program), HasSubstr(R"('--config=[the experiment'\''s file]:FILE:_files')"));
  EXPECT_THAT(zsh_completion(program), HasSubstr(R"('--resume=[where to \[re\]start\: auto or none]:auto|none|FILE:{ compadd)"));
  EXPECT_THAT(fish_completion(program), HasSubstr(R"(-l config -r -F -d 'the experiment\'s file')"));
  EXPECT_THAT(bash_completion(program), HasSubstr("['train --progress']='bar plain'\n"));
  for (const auto& text : {bash_completion(program), zsh_completion(program), fish_completion(program)}) {
    EXPECT_THAT(text, Not(HasSubstr("internal")));
    EXPECT_THAT(text, HasSubstr("optimizer.name"));
  }
}

TEST(ManPage, EscapesDashesAndLeadingDots) {
  auto program = example();
  program.commands[0].description = ".hidden files, and `--config` with a \\\n  'quoted'";
  EXPECT_THAT(command_man_page(program, program.commands[0]),
              HasSubstr(".SH DESCRIPTION\n\\&.hidden files, and \\fB\\-\\-config\\fR with a \\e\n.br\n\\&'quoted'\n"));
  EXPECT_THAT(command_man_page(program, program.commands[1]),
              HasSubstr(".SH checkpoint diff\n.B trainer checkpoint diff\n[\\fIoptions\\fR]\n\\fIFILE\\fR ...\n"));
  EXPECT_THAT(command_man_page(program, program.commands[0]),
              HasSubstr(".SH EXAMPLES\ntrainer \\-\\-config configs/quickstart.yaml\n.br\n"));
  EXPECT_THAT(program_man_page(program), HasSubstr(".TP\n.B optimizer.name\nWhich.\n"));
}

}  // namespace
}  // namespace trainer::completion
