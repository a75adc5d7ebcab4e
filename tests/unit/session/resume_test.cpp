#include "session/resume.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace trainer::session {
namespace {

using Earlier = run::RunDirectory::Earlier;
namespace fs = std::filesystem;

const std::vector<fs::path> kTwo = {"/runs/a/checkpoints/step_00000020.pt", "/runs/a/checkpoints/step_00000010.pt"};
constexpr const char* kForeign = "/elsewhere/step_00000005.pt";

struct Case {
  const char* name;
  Earlier earlier;
  std::vector<fs::path> checkpoints;
  std::string choice;                      // "auto", "none", or a canonical path
  std::optional<ResumeDecision> decision;  // nullopt: refused
  std::string message = {};
};

std::vector<Case> cases() {
  using enum ResumeDecision;
  return {
      {"an empty directory", Earlier::kNothing, {}, "auto", kStart},
      {"an empty directory", Earlier::kNothing, {}, "none", kStart},
      {"an empty directory", Earlier::kNothing, {}, kForeign, kResumeFile},
      {"a run that saved nothing", Earlier::kUnfinished, {}, "auto", kStartAgain},
      {"a run that saved nothing",
       Earlier::kUnfinished,
       {},
       "none",
       std::nullopt,
       "--resume none: /runs/a holds an unfinished run, which is not overwritten; choose another --run-dir or remove the folder"},
      {"a run that saved nothing",
       Earlier::kUnfinished,
       {},
       kForeign,
       std::nullopt,
       "--resume /elsewhere/step_00000005.pt: /runs/a holds another run, which would be lost; choose another --run-dir"},
      {"a run with checkpoints", Earlier::kUnfinished, kTwo, "auto", kResumeNewest},
      {"a run with checkpoints", Earlier::kUnfinished, kTwo, "none", std::nullopt,
       "--resume none: /runs/a holds an unfinished run, which is not overwritten; choose another --run-dir or remove the folder"},
      {"a run with checkpoints, the newest chosen", Earlier::kUnfinished, kTwo, kTwo[0].string(), kResumeFile},
      {"a run with checkpoints, an older one chosen", Earlier::kUnfinished, kTwo, kTwo[1].string(), std::nullopt,
       "--resume /runs/a/checkpoints/step_00000010.pt: /runs/a holds newer checkpoints, which would be lost; choose another --run-dir, "
       "or remove the newer ones"},
      {"a run with checkpoints, a foreign one chosen", Earlier::kUnfinished, kTwo, kForeign, std::nullopt,
       "--resume /elsewhere/step_00000005.pt: /runs/a holds another run, which would be lost; choose another --run-dir"},
      {"a finished run", Earlier::kFinished, kTwo, "auto", kFinished},
      {"a finished run", Earlier::kFinished, kTwo, kTwo[0].string(), kFinished},
      {"a finished run", Earlier::kFinished, kTwo, "none", std::nullopt,
       "--resume none: /runs/a holds a finished run, which is not overwritten; choose another --run-dir or remove the folder"},
  };
}

TEST(DecideResume, DependsOnTheContentOfTheDirectory) {
  for (const auto& [name, earlier, checkpoints, choice, decision, message] : cases()) {
    const RunDirectoryContents contents{"/runs/a", earlier, checkpoints};
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

}  // namespace
}  // namespace trainer::session
