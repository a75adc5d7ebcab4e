#include <gtest/gtest.h>

#include "commands/run_end.h"

namespace trainer::commands {
namespace {

TEST(TrainingCommand, QuotesWhatAShellWouldChange) {
  EXPECT_EQ(training_command({.file = "a.yaml", .overrides = {"optimizer.lr=1e-3", "optimizer={name: adamw}"}}, 1),
            "trainer --config a.yaml optimizer.lr=1e-3 'optimizer={name: adamw}'");
  EXPECT_EQ(training_command({.file = "it's.yaml", .overrides = {}}, 2, {"seed=1"}),
            "trainer launch --nproc-per-node 2 --config 'it'\\''s.yaml' seed=1");
}

}  // namespace
}  // namespace trainer::commands
