#include <gmock/gmock.h>

#include <CLI/CLI.hpp>
#include <array>
#include <map>

#include "cli/answers.h"

namespace trainer::cli {
namespace {

TEST(Completion, ReadsTheOptionsOfCommands) {
  std::string text;
  bool flag = false;
  std::vector<std::string> several;
  CLI::App app("Trains.", "trainer train");
  app.add_option("--config", text, "the file")->required()->type_name("FILE");
  app.add_option("--resume", text, "where to start")->type_name("auto|none|FILE");
  app.add_option("--progress", text, "how")->check(CLI::IsMember({"bar", "plain"}));
  app.add_option("--local-rank,--local_rank", text, "a number");
  app.add_flag("--json", flag, "as JSON");
  app.add_option("--internal", text)->group("");
  app.add_option("overrides", several, "keys")->type_name("key=value");
  app.add_subcommand("diff", "compare two")->add_option("files", several, "the files")->type_name("FILE");
  const auto found = words_of(app, "train");
  const std::map<std::string, std::string> contexts(found.begin(), found.end());
  EXPECT_THAT(contexts.at("train"), ::testing::AllOf(::testing::HasSubstr("--help\t"), ::testing::EndsWith("--config\tthe file\n"
                                                                                                           "--resume\twhere to start\n"
                                                                                                           "--progress\thow\n"
                                                                                                           "--local-rank\ta number\n"
                                                                                                           "--json\tas JSON\n"
                                                                                                           "@keys\n"
                                                                                                           "diff\tcompare two\n")));
  EXPECT_EQ(contexts.at("train --config"), "@files\n");
  EXPECT_EQ(contexts.at("train --resume"), "auto\nnone\n@files\n");
  EXPECT_EQ(contexts.at("train --progress"), "bar\nplain\n");
  EXPECT_EQ(contexts.at("train --local-rank"), "");
  EXPECT_FALSE(contexts.contains("train --json"));
  EXPECT_THAT(contexts.at("train diff"), ::testing::EndsWith("@files\n"));
}

TEST(Completion, OffersWhatFits) {
  constexpr std::array<Answer, 8> kTable = {{{"", "help\t\ntrain\t\nlaunch\t\n"},
                                             {"train", "--config\tthe file\n--progress\thow\n@keys\n"},
                                             {"train --config", "@files\n"},
                                             {"train --progress", "bar\nplain\n"},
                                             {"launch", "--nproc-per-node\tranks\n"},
                                             {"launch --nproc-per-node", ""},
                                             {"@keys", "seed=\tthe seed\noutput_dir=\t\n"},
                                             {"output_dir=", "@files\n"}}};
  const auto offered = [&](std::vector<std::string> words) { return completions(kTable, words); };
  EXPECT_EQ(offered({""}), "help\t\ntrain\t\nlaunch\t\n");
  EXPECT_EQ(offered({"--prog"}), "--progress\thow\n");
  EXPECT_EQ(offered({"help", "la"}), "launch\t\n");
  EXPECT_EQ(offered({"--config", ""}), "@files\n");
  EXPECT_EQ(offered({"train", "--progress=p"}), "plain\n");
  EXPECT_EQ(offered({"--config", "a.yaml", "se"}), "seed=\tthe seed\n");
  EXPECT_EQ(offered({"--config", "a.yaml", "output_dir=x"}), "@files\n");
  EXPECT_EQ(offered({"launch", "--nproc-per-node", ""}), "");
  EXPECT_EQ(offered({"launch", "--nproc-per-node", "2", "--"}), "--nproc-per-node\tranks\n--config\tthe file\n--progress\thow\n");
  EXPECT_EQ(offered({"launch", "--nproc-per-node", "2", "--config", "a"}), "@files\n");
}

TEST(FindAnswer, OnlyTheWholeCommandLineCounts) {
  const std::array<Answer, 2> answers = {{{"list models", "resnet18\n"}, {"--help", "usage\n"}}};
  const auto* text = find_answer(answers, {"list", "models"});
  ASSERT_NE(text, nullptr);
  EXPECT_EQ(*text, "resnet18\n");
  EXPECT_EQ(find_answer(answers, {"list"}), nullptr);
  EXPECT_EQ(find_answer(answers, {"list", "models", "--help"}), nullptr);
  EXPECT_EQ(find_answer(answers, {}), nullptr);
}

}  // namespace
}  // namespace trainer::cli
