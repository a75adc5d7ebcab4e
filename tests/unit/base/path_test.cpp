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

TEST(Path, TheFolderOfSeveralRunsFollowsTheFirstVariableThatIsSet) {
  for (const char* name : {"TRAINER_HOME", "XDG_CACHE_HOME"}) ::unsetenv(name);
  ::setenv("HOME", "/home/ada", 1);
  EXPECT_EQ(home_folder(), "/home/ada/.cache/trainer");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(home_folder(), "/home/ada/.cache/trainer");
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(home_folder(), "/cache/trainer");
  ::setenv("TRAINER_HOME", "/own", 1);
  EXPECT_EQ(home_folder(), "/own");
  for (const char* name : {"TRAINER_HOME", "XDG_CACHE_HOME"}) ::setenv(name, "", 1);
  EXPECT_EQ(home_folder(), "/home/ada/.cache/trainer");
  ::setenv("HOME", "", 1);
  try {
    home_folder();
    ADD_FAILURE() << "HOME is empty";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "HOME is not set, so there is no folder for weights and caches; set HOME, or set TRAINER_HOME to a folder");
  }
}

}  // namespace
}  // namespace trainer
