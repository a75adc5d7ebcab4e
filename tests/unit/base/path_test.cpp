#include "base/path.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "trainer/error.h"

namespace trainer {
namespace {

std::string expanded(const std::string& path) {
  setenv("HOME", "/home/ada", /*overwrite=*/1);
  setenv("TRAINER_TEST_DATA", "/data", 1);
  unsetenv("TRAINER_TEST_ABSENT");
  try {
    return expand_path(path);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Path, HomeFolderAndVariablesAreReplaced) {
  EXPECT_EQ(expanded("~"), "/home/ada");
  EXPECT_EQ(expanded("~/runs"), "/home/ada/runs");
  EXPECT_EQ(expanded("${TRAINER_TEST_DATA}/cifar/${TRAINER_TEST_DATA}"), "/data/cifar//data");
  EXPECT_EQ(expanded("runs/~/$HOME/a"), "runs/~/$HOME/a");
  EXPECT_EQ(expanded(""), "");
  EXPECT_EQ(expanded("~bob/runs"), "~ must be followed by / or nothing; write the path of another user's folder in full");
  EXPECT_EQ(expanded("a/${TRAINER_TEST_ABSENT}"), "the environment variable TRAINER_TEST_ABSENT is not set; set it");
  EXPECT_EQ(expanded("${}"), "${} contains no variable name");
  EXPECT_EQ(expanded("${TRAINER_TEST_DATA"), "a ${ has no closing }");
}

}  // namespace
}  // namespace trainer
