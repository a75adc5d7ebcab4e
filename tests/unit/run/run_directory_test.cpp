#include "run/run_directory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>

#include "base/file.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer::run {
namespace {

void write_text(const std::filesystem::path& file, const std::string& text) { std::ofstream(file) << text; }

template <typename ErrorType>
std::string message_of_opening(const std::filesystem::path& path) {
  try {
    const RunDirectory directory(path);
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "opened";
}

TEST(RunDirectory, CreatesTheFolderAndNamesItsFiles) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "runs" / "first";
  const RunDirectory directory(path);
  EXPECT_TRUE(std::filesystem::is_directory(path));
  EXPECT_EQ(directory.earlier_holder(), "");
  EXPECT_EQ(directory.path(), path);
  EXPECT_EQ(directory.metrics_file(), path / "metrics.jsonl");
  EXPECT_EQ(directory.tensorboard_folder(), path / "tensorboard");
}

TEST(RunDirectory, KnowsTheFilesThatRunsWrite) {
  const testing::TemporaryFolder folder;
  const RunDirectory directory(folder.path());
  directory.begin();
  auto files = directory.written_files().files();
  for (const auto& file : {directory.config_file(), directory.environment_file(), directory.class_names_file(), directory.metrics_file(),
                           directory.metrics_table_file(), directory.profile_file(), directory.evaluation_file(),
                           directory.best_evaluation_file(), directory.summary_file()}) {
    EXPECT_NE(std::find(files.begin(), files.end(), file), files.end()) << file;
  }
  files.insert(files.end(), {directory.log_file(), rank_log_file(folder.path(), 3), directory.checkpoint_folder() / "last.pt",
                             directory.tensorboard_folder() / "events", directory.non_finite_folder() / "step_1" / "model.pt"});
  // The lock and the list of files are added.
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) files.push_back(entry.path());
  for (const auto& file : files) EXPECT_TRUE(is_file_of_run(file.lexically_relative(folder.path()))) << file;
  for (const char* other : {"report.html", "rank_.log", "rank_x.log", "checkpoints/mean.safetensors", "other/metrics.jsonl"}) {
    EXPECT_FALSE(is_file_of_run(other)) << other;
  }
}

TEST(RunDirectory, ASecondStartNamesTheHolder) {
  const testing::TemporaryFolder folder;
  const RunDirectory directory(folder.path());
  const std::string message = message_of_opening<UsageError>(folder.path());
  EXPECT_NE(message.find("the run directory " + folder.path().string() + " is in use by process " + std::to_string(::getpid()) + " on "),
            std::string::npos)
      << message;
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  EXPECT_NE(message.find(std::string(" on ") + host + " since 20"), std::string::npos) << message;
  EXPECT_NE(message.find("--run-dir"), std::string::npos) << message;
}

TEST(RunDirectory, TheLockEndsWithTheObject) {
  const testing::TemporaryFolder folder;
  std::optional<RunDirectory> first(std::in_place, folder.path());
  EXPECT_NE(message_of_opening<UsageError>(folder.path()), "opened");
  first.reset();
  EXPECT_EQ(message_of_opening<UsageError>(folder.path()), "opened");
}

TEST(RunDirectory, TheLockEndsWithTheProcessAndTheNextHolderIsNamed) {
  const testing::TemporaryFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    new RunDirectory(folder.path());  // no destructor runs, as in a killed process
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_NE(read_file(folder.path() / ".lock").find("process " + std::to_string(child) + " on "), std::string::npos);
  std::optional<RunDirectory> directory(std::in_place, folder.path());
  const std::string content = read_file(folder.path() / ".lock");
  EXPECT_EQ(content.find("process " + std::to_string(::getpid()) + " on "), 0U) << content;
  EXPECT_EQ(directory->earlier_holder().find("process " + std::to_string(child) + " on "), 0U) << directory->earlier_holder();
  // After an orderly end, the lock names no earlier holder.
  directory.reset();
  EXPECT_EQ(RunDirectory(folder.path()).earlier_holder(), "");
}

TEST(RunDirectory, ErrorNamesAFolderThatCannotBeCreated) {
  const testing::TemporaryFolder folder;
  write_text(folder.path() / "file", "");
  const auto path = folder.path() / "file" / "run";
  EXPECT_EQ(message_of_opening<Error>(path),
            "cannot use the run directory " + path.string() + ": Not a directory; choose another --run-dir");
}

// The situation of a container whose user does not own the mounted folder.
TEST(RunDirectory, AFolderOfAnotherUserIsNamedWithTheRemedy) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const testing::TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  const auto path = folder.path().string();
  const pid_t child = fork();
  if (child == 0) {
    if (setegid(1234) != 0 || seteuid(1234) != 0) _exit(2);
    const auto message = message_of_opening<Error>(folder.path() / "runs" / "first");
    std::cerr << message << "\n";
    _exit(message == "cannot use the run directory " + path + "/runs/first: Permission denied: " + path +
                         " belongs to user 0, but this process runs as user 1234 (choose another --run-dir; chown -R 1234 " + path +
                         " gives it to this user; to run a container as its owner, use --user 0:0)"
              ? 0
              : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(RunDirectory, ErrorNamesAFolderThatCannotBeWritten) {
  const testing::TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / ".lock");
  EXPECT_EQ(message_of_opening<Error>(folder.path()), "cannot use the run directory " + folder.path().string() +
                                                          ": .lock: it is a folder, not a regular file; choose another --run-dir");
}

std::string message_of_check(const RunDirectory& directory) {
  try {
    directory.check_lock();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "holds the lock";
}

TEST(RunDirectory, NoticesThatAnotherRunHasTakenTheFolder) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "run";
  const RunDirectory first(path);
  EXPECT_EQ(message_of_check(first), "holds the lock");
  for (const auto& removed : {path, path / ".lock"}) {
    std::filesystem::remove_all(removed);
    // No other run uses the folder.
    EXPECT_EQ(message_of_check(first), "holds the lock");
    std::optional<RunDirectory> second(std::in_place, path);
    EXPECT_EQ(message_of_check(*second), "holds the lock");
    const auto message = message_of_check(first);
    const auto expected = "the run directory " + path.string() +
                          " was removed, or lost its lock file or its lease, and now belongs to process " + std::to_string(::getpid()) +
                          " on ";
    EXPECT_TRUE(message.starts_with(expected)) << message;
    EXPECT_TRUE(message.ends_with("; this run ends and writes nothing there; choose a different --run-dir for each run")) << message;
    second.reset();
    EXPECT_NE(message_of_check(first).find("now belongs to another run;"), std::string::npos);
  }
}

TEST(RunDirectory, SymbolicLinksAreNotFollowed) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "run";
  const auto elsewhere = folder.path() / "elsewhere";
  for (const char* name :
       {".lock", "train.log", "metrics.jsonl", "metrics.csv", "checkpoints", "tensorboard", "non_finite", "profile.json"}) {
    std::filesystem::create_directories(path);
    std::filesystem::create_symlink(elsewhere, path / name);
    EXPECT_EQ(message_of_opening<Error>(path), "cannot use the run directory " + path.string() + ": " + name + " is a symbolic link to " +
                                                   elsewhere.string() +
                                                   ", which is not followed; remove the link, or choose another --run-dir");
    EXPECT_FALSE(std::filesystem::exists(elsewhere)) << name;
    std::filesystem::remove_all(path);
  }
  const RunDirectory directory(path);
  std::filesystem::create_directories(directory.tensorboard_folder());
  write_text(elsewhere, "unchanged");
  std::filesystem::create_symlink(elsewhere, directory.tensorboard_folder() / "events.out");
  directory.written_files().add(directory.tensorboard_folder() / "events.out");
  EXPECT_THROW(directory.truncate_event_files({{"tensorboard/events.out", 0}}), Error);
  EXPECT_EQ(read_file(elsewhere), "unchanged");
  EXPECT_EQ(rank_log_file(path, 1), path / "rank_1.log");
  std::filesystem::create_symlink(elsewhere, path / "rank_1.log");
  EXPECT_THROW(rank_log_file(path, 1), Error);
  // The run directory itself may be a link, which is the user's choice.
  std::filesystem::create_directory_symlink(folder.path() / "target", folder.path() / "link");
  std::filesystem::create_directory(folder.path() / "target");
  EXPECT_EQ(message_of_opening<Error>(folder.path() / "link"), "opened");
}

TEST(RunDirectory, DiscardsOnlyWhatItHasMade) {
  const testing::TemporaryFolder folder;
  const auto outer = folder.path() / "outer";
  const auto run = outer / "inner" / "run";
  {
    RunDirectory directory(run);
    write_text(directory.log_file(), "refused");
    directory.discard();
  }
  EXPECT_FALSE(std::filesystem::exists(outer));
  std::filesystem::create_directory(outer);
  RunDirectory(run).discard();
  EXPECT_TRUE(std::filesystem::exists(outer));
  EXPECT_FALSE(std::filesystem::exists(run.parent_path()));
  {
    RunDirectory directory(run);
    write_text(run / "notes.txt", "of the user");
    directory.discard();
  }
  EXPECT_TRUE(std::filesystem::exists(run / "notes.txt"));
  // A folder that was there already is not removed.
  RunDirectory directory(run);
  std::filesystem::remove(run / "notes.txt");
  directory.discard();
  EXPECT_TRUE(std::filesystem::exists(directory.path()));
}

// All files below a folder and their contents.
std::map<std::string, std::string> contents_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) contents[entry.path().lexically_relative(folder).string()] = read_file(entry.path());
  }
  return contents;
}

void write_all_texts(const std::filesystem::path& folder, const std::map<std::string, std::string>& texts) {
  for (const auto& [name, text] : texts) {
    std::filesystem::create_directories((folder / name).parent_path());
    write_text(folder / name, text);
  }
}

TEST(RunDirectory, AFolderOfSomebodyElseIsRefusedAndNotChanged) {
  for (const char* name : {"config.yaml", "environment.json", "classes.txt", "metrics.jsonl", "metrics.csv", "profile.json",
                           "evaluation.json", "summary.json", "train.log", "rank_3.log", ".lock", "checkpoints/epoch_10.pth",
                           "checkpoints/step_00000010.pt", "tensorboard/events.out.tfevents.1", "non_finite/step_5/step.json"}) {
    const testing::TemporaryFolder folder;
    const auto path = folder.path() / "p";
    write_all_texts(path, {{name, "{\"of\": \"somebody\"}\n"}, {"notes.txt", "kept"}});
    const auto before = contents_of(path);
    const std::string top = std::string(name).substr(0, std::string(name).find('/'));
    EXPECT_EQ(message_of_opening<UsageError>(path), "the run directory " + path.string() + " contains " + top +
                                                        ", which no run of this program has written; nothing there was changed; choose "
                                                        "another --run-dir, or move these files elsewhere");
    EXPECT_EQ(contents_of(path), before) << name;
  }
}

// discard() is what a refused start does: in an existing folder it leaves a lock, a log and a list of files, which must not make files of
// somebody else pass for files of a run.
TEST(RunDirectory, AFileThatWasThereBeforeTheRunBeganIsRefused) {
  const testing::TemporaryFolder folder;
  RunDirectory(folder.path()).discard();
  write_all_texts(folder.path(), {{"config.yaml", "of somebody"}, {"train.log", ""}, {"checkpoints/epoch_10.pth", ""}});
  EXPECT_EQ(
      message_of_opening<UsageError>(folder.path()),
      "the run directory " + folder.path().string() +
          " contains config.yaml, which no run of this program has written; nothing there was changed; choose another --run-dir, or move "
          "these files elsewhere");
  std::filesystem::remove(folder.path() / "config.yaml");
  {
    const RunDirectory directory(folder.path());
    directory.begin();
    write_text(directory.config_file(), "of the run");
  }
  EXPECT_EQ(message_of_opening<UsageError>(folder.path()), "opened");
}

TEST(RunDirectory, OtherNamesDoNotMatter) {
  const testing::TemporaryFolder folder;
  write_all_texts(folder.path(), {{"notes.txt", ""}, {"rank_x.log", ""}, {"data/train.log", ""}, {"best.pt", ""}});
  EXPECT_EQ(message_of_opening<UsageError>(folder.path()), "opened");
}

TEST(RunDirectory, ClearRemovesOnlyWhatRunsHaveWritten) {
  const testing::TemporaryFolder folder;
  const std::map<std::string, std::string> own = {{"environment.json", ""},
                                                  {"metrics.csv", ""},
                                                  {"checkpoints/step_00000010.pt", ""},
                                                  {"checkpoints/step_100000000.pt", ""},
                                                  {"tensorboard/events.out.tfevents.1700000000.host-1.example.31", ""},
                                                  {"non_finite/step_5/step.json", ""},
                                                  {"non_finite/step_5/model.pt", ""}};
  const std::map<std::string, std::string> others = {{"notes.txt", ""},
                                                     {"train.log", ""},
                                                     {"checkpoints/step_10.pt", ""},
                                                     {"checkpoints/step_00000010_good.pt", ""},
                                                     {"checkpoints/epoch_10.pth", ""},
                                                     {"checkpoints/kept/step_00000010.pt", ""},
                                                     {"checkpoints/best.pt", ""},
                                                     {"tensorboard/events.out.tfevents.1700000000.host.31.0", ""},
                                                     {"tensorboard/profile.json", ""},
                                                     {"non_finite/step_5/notes.txt", ""}};
  {
    const RunDirectory directory(folder.path());
    directory.begin();
    for (const auto& file : own) directory.written_files().add(folder.path() / file.first);
    write_all_texts(folder.path(), own);
    write_all_texts(folder.path(), others);
    std::filesystem::create_symlink("step_00000010.pt", folder.path() / "checkpoints" / "last.pt");
    directory.written_files().add(directory.checkpoint_folder() / "step_00000020.pt");
    write_all_texts(folder.path(), {{"checkpoints/step_00000020.pt", ""}, {"checkpoints/step_00000030.pt", "of somebody"}});
    directory.clear();
  }
  auto expected = others;
  expected["checkpoints/step_00000030.pt"] = "of somebody";
  auto left = contents_of(folder.path());
  EXPECT_EQ(left.erase(".lock") + left.erase(".trainer_run"), 2U);
  EXPECT_EQ(left, expected);
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(folder.path() / "checkpoints" / "last.pt")));
}

// Another user with write access to the folder may have added the link and the name.
TEST(RunDirectory, ClearRemovesNothingBehindALink) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "run";
  const auto elsewhere = folder.path() / "elsewhere";
  write_all_texts(elsewhere, {{"model.pt", "of somebody"}, {"within/model.pt", "of somebody"}});
  {
    const RunDirectory directory(path);
    std::filesystem::create_directories(directory.non_finite_folder());
    std::filesystem::create_directory_symlink(elsewhere, directory.non_finite_folder() / "step_5");
    for (const char* name : {"step_5/model.pt", "step_5/within/model.pt"}) {
      directory.written_files().add(directory.non_finite_folder() / name);
    }
    directory.clear();
    EXPECT_TRUE(std::filesystem::is_symlink(directory.non_finite_folder() / "step_5"));
  }
  EXPECT_EQ(contents_of(elsewhere).size(), 2U);
  write_all_texts(path, {{".trainer_run", "trainer run directory, format 1\n../elsewhere/model.pt\n"}});
  EXPECT_NE(message_of_opening<UsageError>(path).find("../elsewhere/model.pt"), std::string::npos);
  EXPECT_EQ(contents_of(elsewhere).size(), 2U);
}

TEST(RunDirectory, ClearRemovesItsEmptyFolders) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "run" / "";
  const RunDirectory directory(path);
  for (const char* name : {"checkpoints/step_00000010.pt", "non_finite/step_5/step.json"}) {
    directory.written_files().add(directory.path() / name);
    write_all_texts(path, {{name, ""}});
  }
  directory.clear();
  auto left = std::filesystem::directory_iterator(path);
  EXPECT_EQ(std::distance(left, {}), 2);  // the lock and the list
}

TEST(RunDirectory, EventFilesOfOthersAreNeitherShortenedNorRemoved) {
  const testing::TemporaryFolder folder;
  const RunDirectory directory(folder.path());
  const auto own = directory.tensorboard_folder() / "events.out.tfevents.1.host.2";
  const auto later = directory.tensorboard_folder() / "events.out.tfevents.3.host.2";
  directory.written_files().add(own);
  directory.written_files().add(later);
  const auto other = directory.tensorboard_folder() / "events.out.tfevents.2.host.2";
  std::filesystem::create_directories(directory.tensorboard_folder());
  for (const auto& file : {own, later, other}) write_text(file, "0123456789");
  EXPECT_EQ(directory.event_files().size(), 2U);
  directory.truncate_event_files({{"tensorboard/" + own.filename().string(), 4}, {"tensorboard/" + other.filename().string(), 4}});
  EXPECT_EQ(read_file(own), "0123");
  EXPECT_EQ(read_file(other), "0123456789");
  EXPECT_FALSE(std::filesystem::exists(later));
}

TEST(RunDirectory, RecognisesAnEarlierRun) {
  const testing::TemporaryFolder folder;
  const RunDirectory directory(folder.path());
  EXPECT_EQ(directory.earlier_run(), RunDirectory::EarlierRun::kNone);
  write_text(directory.config_file(), "experiment: x\n");
  EXPECT_EQ(directory.earlier_run(), RunDirectory::EarlierRun::kNone);
  write_text(directory.metrics_file(), "");
  EXPECT_EQ(directory.earlier_run(), RunDirectory::EarlierRun::kUnfinished);
  write_text(directory.summary_file(), R"({"reason": "stopped"})");
  EXPECT_EQ(directory.earlier_run(), RunDirectory::EarlierRun::kUnfinished);
  write_text(directory.summary_file(), R"({"reason": "done"})");
  EXPECT_EQ(directory.earlier_run(), RunDirectory::EarlierRun::kFinished);
}

TEST(RunDirectory, ADamagedSummaryMeansAnUnfinishedRun) {
  const testing::TemporaryFolder folder;
  const RunDirectory directory(folder.path());
  for (const char* text : {"", R"({"reason": "do)", R"("done")", R"({"reason": 1})", R"({"step": 5})"}) {
    write_text(directory.summary_file(), text);
    EXPECT_EQ(directory.earlier_run(), RunDirectory::EarlierRun::kUnfinished) << text;
  }
}

// Copying a value with this nesting would overflow the stack.
TEST(RunDirectory, DeeplyNestedJsonCountsAsDamaged) {
  const testing::TemporaryFolder folder;
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  const auto path = folder.path() / "run";
  {
    const RunDirectory directory(path);
    write_text(directory.summary_file(), "{\"reason\": " + deep + "}");
    EXPECT_EQ(directory.earlier_run(), RunDirectory::EarlierRun::kUnfinished);
    write_text(directory.evaluation_file(), "{\"step\": " + deep + "}");
    directory.remove_later_evaluations(/*step=*/20);
    EXPECT_FALSE(std::filesystem::exists(directory.evaluation_file()));
  }
  write_all_texts(folder.path() / "other", {{"environment.json", R"({"command_line": )" + deep + R"(, "trainer_version": "1.0"})"}});
  EXPECT_NE(message_of_opening<UsageError>(folder.path() / "other").find("contains environment.json"), std::string::npos);
}

TEST(RunDirectory, RemovesTheEvaluationOfALaterStep) {
  const testing::TemporaryFolder folder;
  const RunDirectory directory(folder.path());
  const auto is_kept = [&](const std::string& text) {
    write_text(directory.evaluation_file(), text);
    write_text(directory.best_evaluation_file(), "{\"step\": 10}");
    write_text(directory.calibration_file(), text);
    directory.remove_later_evaluations(/*step=*/20);
    EXPECT_TRUE(std::filesystem::exists(directory.best_evaluation_file()));
    EXPECT_EQ(std::filesystem::exists(directory.calibration_file()), std::filesystem::exists(directory.evaluation_file()));
    return std::filesystem::exists(directory.evaluation_file());
  };
  EXPECT_TRUE(is_kept("{\"step\": 20}"));
  EXPECT_FALSE(is_kept("{\"step\": 21}"));
  EXPECT_FALSE(is_kept("{\"step\""));
  EXPECT_FALSE(is_kept("[]"));
  directory.remove_later_evaluations(/*step=*/20);
}

}  // namespace
}  // namespace trainer::run
