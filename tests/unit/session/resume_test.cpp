#include "run/session/resume.h"

#include <gtest/gtest.h>

#include "checkpoint/pytorch_file.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/checkpoint.h"
#include "trainer/error.h"

namespace trainer::session {
namespace {

using EarlierRun = run::RunDirectory::EarlierRun;
namespace fs = std::filesystem;

const std::vector<fs::path> kTwo = {"/runs/a/checkpoints/step_00000020.pt", "/runs/a/checkpoints/step_00000010.pt"};
constexpr const char* kForeign = "/elsewhere/step_00000005.pt";

struct Case {
  const char* name;
  EarlierRun earlier_run;
  std::vector<fs::path> checkpoints;
  std::string choice;                      // "auto", "none", or a canonical path
  std::optional<ResumeDecision> decision;  // nullopt: refused
  std::string message = {};
  std::vector<config::Difference> changes = {};  // since a finished run
};

const config::Difference kMoreEpochs{"training.epochs", "3", "6"};
const config::Difference kMoreSteps{"training.steps", "300", "600"};

std::vector<Case> cases() {
  using enum ResumeDecision;
  return {
      {"an empty directory", EarlierRun::kNone, {}, "auto", kStart},
      {"an empty directory", EarlierRun::kNone, {}, "none", kStart},
      {"an empty directory", EarlierRun::kNone, {}, kForeign, kResumeFile},
      {"a run that saved nothing", EarlierRun::kUnfinished, {}, "auto", kStartAgain},
      {"a run that saved nothing",
       EarlierRun::kUnfinished,
       {},
       "none",
       std::nullopt,
       "--resume none: /runs/a holds an unfinished run, which is not overwritten; choose another --run-dir or remove the folder"},
      {"a run that saved nothing",
       EarlierRun::kUnfinished,
       {},
       kForeign,
       std::nullopt,
       "--resume /elsewhere/step_00000005.pt: /runs/a holds another run, which would be lost; choose another --run-dir"},
      {"a run with checkpoints", EarlierRun::kUnfinished, kTwo, "auto", kResumeNewest},
      {"a run with checkpoints", EarlierRun::kUnfinished, kTwo, "none", std::nullopt,
       "--resume none: /runs/a holds an unfinished run, which is not overwritten; choose another --run-dir or remove the folder"},
      {"a run with checkpoints, the newest chosen", EarlierRun::kUnfinished, kTwo, kTwo[0].string(), kResumeFile},
      {"a run with checkpoints, an older one chosen", EarlierRun::kUnfinished, kTwo, kTwo[1].string(), std::nullopt,
       "--resume /runs/a/checkpoints/step_00000010.pt: /runs/a holds newer checkpoints, which would be lost; choose another --run-dir, "
       "or remove the newer ones"},
      {"a run with checkpoints, a foreign one chosen", EarlierRun::kUnfinished, kTwo, kForeign, std::nullopt,
       "--resume /elsewhere/step_00000005.pt: /runs/a holds another run, which would be lost; choose another --run-dir"},
      {"a finished run", EarlierRun::kFinished, kTwo, "auto", kFinished},
      {"a finished run", EarlierRun::kFinished, kTwo, kTwo[0].string(), kFinished},
      {"a finished run, an older checkpoint chosen", EarlierRun::kFinished, kTwo, kTwo[1].string(), std::nullopt,
       "--resume /runs/a/checkpoints/step_00000010.pt: /runs/a holds a finished run; choose another --run-dir to resume from this "
       "checkpoint"},
      {"a finished run", EarlierRun::kFinished, kTwo, "none", std::nullopt,
       "--resume none: /runs/a holds a finished run, which is not overwritten; choose another --run-dir or remove the folder"},
      {"a finished run, more epochs", EarlierRun::kFinished, kTwo, "auto", kResumeNewest, "", {kMoreEpochs}},
      {"a finished run, more steps", EarlierRun::kFinished, kTwo, "auto", kResumeNewest, "", {kMoreSteps}},
      {"a finished run, fewer steps",
       EarlierRun::kFinished,
       kTwo,
       "auto",
       std::nullopt,
       "/runs/a holds a finished run with another configuration (training.steps: 299, not 300); undo this change, choose another "
       "--run-dir, or set training.extend: true to continue it with this configuration",
       {{"training.steps", "300", "299"}}},
      {"a finished run, steps instead of epochs",
       EarlierRun::kFinished,
       kTwo,
       "auto",
       std::nullopt,
       "/runs/a holds a finished run with another configuration (training.epochs: null, not 3; training.steps: 600, not null); undo this "
       "change, choose another --run-dir, or set training.extend: true to continue it with this configuration",
       {{"training.epochs", "3", "null"}, {"training.steps", "null", "600"}}},
      {"a finished run whose file has no such key",
       EarlierRun::kFinished,
       kTwo,
       "auto",
       std::nullopt,
       "/runs/a holds a finished run with another configuration (training.steps: 6, not unset); undo this change, choose another "
       "--run-dir, or set training.extend: true to continue it with this configuration",
       {{"training.steps", "unset", "6"}}},
      {"a finished run, more epochs, the newest chosen", EarlierRun::kFinished, kTwo, kTwo[0].string(), kResumeFile, "", {kMoreEpochs}},
      {"a finished run, more epochs, an older one chosen",
       EarlierRun::kFinished,
       kTwo,
       kTwo[1].string(),
       std::nullopt,
       "--resume /runs/a/checkpoints/step_00000010.pt: /runs/a holds newer checkpoints, which would be lost; choose another --run-dir, "
       "or remove the newer ones",
       {kMoreEpochs}},
      {"a finished run without checkpoints, more epochs",
       EarlierRun::kFinished,
       {},
       "auto",
       std::nullopt,
       "/runs/a holds a finished run, but no checkpoint from which to continue; choose another --run-dir",
       {kMoreEpochs}},
      {"a finished run, fewer epochs",
       EarlierRun::kFinished,
       kTwo,
       "auto",
       std::nullopt,
       "/runs/a holds a finished run with another configuration (training.epochs: 2, not 3); undo this change, choose another --run-dir, "
       "or set training.extend: true to continue it with this configuration",
       {{"training.epochs", "3", "2"}}},
      {"a finished run, more epochs of another model",
       EarlierRun::kFinished,
       kTwo,
       "auto",
       std::nullopt,
       "/runs/a holds a finished run with another configuration (model.name: resnet20, not vgg11; training.epochs: 6, not 3); undo this "
       "change, choose another --run-dir, or set training.extend: true to continue it with this configuration",
       {{"model.name", "vgg11", "resnet20"}, kMoreEpochs}},
      {"a finished run, another learning rate",
       EarlierRun::kFinished,
       kTwo,
       kTwo[0].string(),
       std::nullopt,
       "/runs/a holds a finished run with another configuration (optimizer.lr: 0.2, not 0.1); undo this change, choose another --run-dir, "
       "or set training.extend: true to continue it with this configuration",
       {{"optimizer.lr", "0.1", "0.2"}}},
  };
}

TEST(DecideResume, FollowsFromWhatTheDirectoryHolds) {
  for (const auto& [name, earlier_run, checkpoints, choice, decision, message, changes] : cases()) {
    const RunDirectoryContents contents{"/runs/a", earlier_run, checkpoints, changes};
    try {
      const auto decided = decide_resume(contents, choice, choice);
      ASSERT_TRUE(decision.has_value()) << name << ", --resume " << choice;
      EXPECT_EQ(decided, *decision) << name << ", --resume " << choice;
    } catch (const UsageError& error) {
      ASSERT_FALSE(decision.has_value()) << name << ", --resume " << choice << ": " << error.what();
      EXPECT_EQ(error.what(), message);
    }
  }
}

TEST(DecideResume, WithExtendAFinishedRunIsContinuedAfterAnyChange) {
  const std::vector<config::Difference> changes = {{"optimizer.lr", "0.1", "0.2"}, {"training.extend", "false", "true"}, kMoreEpochs};
  const RunDirectoryContents contents{"/runs/a", EarlierRun::kFinished, kTwo, changes};
  EXPECT_EQ(decide_resume(contents, "auto", {}, /*extend=*/true), ResumeDecision::kResumeNewest);
  EXPECT_EQ(decide_resume({"/runs/a", EarlierRun::kFinished, kTwo, std::vector<config::Difference>()}, "auto", {}, /*extend=*/true),
            ResumeDecision::kFinished);
  EXPECT_THROW(decide_resume({"/runs/a", EarlierRun::kFinished, {}, changes}, "auto", {}, /*extend=*/true), UsageError);
}

TEST(DecideResume, WithoutAConfigurationTheCheckpointTellsWhetherTheRunContinues) {
  EXPECT_EQ(decide_resume({"/runs/a", EarlierRun::kFinished, kTwo}, "auto"), ResumeDecision::kResumeNewest);
  EXPECT_EQ(decide_resume({"/runs/a", EarlierRun::kFinished}, "auto"), ResumeDecision::kFinished);
}

TEST(CheckData, RefusesOtherClasses) {
  const auto error_of = [](const std::vector<std::string>& then, const std::vector<std::string>& now) -> std::string {
    state::Dict tree;
    if (!then.empty()) tree.add("class_names", state::List(then.begin(), then.end()));
    try {
      check_data({"a.pt", std::move(tree)}, {.class_names = now}, {});
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of({"cat", "dog"}, {"cat", "dog"}), "no error");
  EXPECT_EQ(error_of({}, {"cat", "dog"}), "no error");
  const std::string begin = "a.pt: this network was trained on other classes: class ";
  const std::string end = " in the data now; restore the data, or start a new run in another --run-dir";
  EXPECT_EQ(error_of({"cat", "dog"}, {"cat", "cow"}), begin + "1 was \"dog\" and is \"cow\"" + end);
  EXPECT_EQ(error_of({"cat", "dog"}, {"cat"}), begin + "1 was \"dog\" and is missing" + end);
  EXPECT_EQ(error_of({"cat"}, {"cat", "cow"}), begin + "1 was missing and is \"cow\"" + end);
}

TEST(FindBest, ACheckpointThatHasBeenRemovedDoesNotEndTheStart) {
  const testing::TemporaryFolder folder;
  const auto tree_of_step = [](int64_t step) {
    state::Dict tree;
    tree.add("step", step);
    return tree;
  };
  auto tree = tree_of_step(20);
  tree.add("best", tree_of_step(10));
  const Checkpoint removed{folder.path() / "step_00000020.pt", std::move(tree)};
  const auto logger = make_quiet_logger();
  EXPECT_EQ(folder_of(removed), fs::canonical(folder.path()));
  EXPECT_EQ(find_best(removed, *logger), fs::path());
  checkpoint::save(folder.path() / "best.pt", tree_of_step(10));
  EXPECT_EQ(find_best(removed, *logger), fs::canonical(folder.path()) / "best.pt");
}

}  // namespace
}  // namespace trainer::session
