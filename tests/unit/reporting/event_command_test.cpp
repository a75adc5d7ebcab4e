#include "reporting/event_command.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <sstream>

#include "base/file.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer::reporting::test {
namespace {

using namespace std::chrono_literals;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct CommandLog {
  std::ostringstream text;
  Logger logger{"test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text)};
  CommandLog() {
    logger.set_pattern("%l: %v");
    ::signal(SIGPIPE, SIG_IGN);
  }
};

EventCommandOptions shell(const std::string& script, std::vector<std::string> arguments = {}) {
  EventCommandOptions options{.command = {"sh", "-c", script, "sh"}, .place = "x.yaml:3:4: logging.command"};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  return options;
}

std::string refusal_of(const std::string& program) {
  CommandLog log;
  try {
    EventCommand command({.command = {program}, .place = "x.yaml:3:4: logging.command"}, log.logger);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "started";
}

// Returns the log after the program has ended.
template <typename Use>
std::string log_of(EventCommandOptions options, Use use) {
  CommandLog log;
  EventCommand command(std::move(options), log.logger);
  use(command);
  command.finish(1h);
  return log.text.str();
}

TEST(EventCommand, TheProgramGetsEveryLineAndIsWaitedFor) {
  const testing::TemporaryFolder folder;
  const auto file = (folder.path() / "a file").string();
  std::string sent;
  const auto log = log_of(shell("sleep 0.2; cat >\"$1\"", {file}), [&](EventCommand& command) {
    for (int i = 0; i < 20'000; ++i) {
      const auto line = "line " + std::to_string(i);
      command.send(line);
      sent += line + '\n';
    }
  });
  EXPECT_EQ(log, "");
  EXPECT_EQ(read_file(file), sent);
}

TEST(EventCommand, AProgramThatEndsIsReportedOnce) {
  for (const auto& [script, end] : {std::pair("exit 3", "ended with exit code 3"), std::pair("true", "ended with exit code 0"),
                                    std::pair("kill -9 $$", "was killed by signal 9 (Killed)")}) {
    const auto log = log_of(shell(script), [](EventCommand& command) {
      for (int i = 0; i < 10; ++i) {
        command.send("x");
        std::this_thread::sleep_for(20ms);
      }
    });
    EXPECT_EQ(log, std::string("warning: x.yaml:3:4: logging.command: sh ") + end + " and receives no more events; training continues\n");
  }
}

TEST(EventCommand, AProgramThatFailsAtItsEndIsReported) {
  const auto log = log_of(shell("cat >/dev/null; exit 7"), [](EventCommand& command) { command.send("x"); });
  EXPECT_EQ(log, "warning: x.yaml:3:4: logging.command: sh ended with exit code 7\n");
}

TEST(EventCommand, AProgramThatClosesItsInputIsReported) {
  const auto log = log_of(shell("exec <&-; sleep 1"), [](EventCommand& command) {
    for (int i = 0; i < 10; ++i) {
      command.send("x");
      std::this_thread::sleep_for(20ms);
    }
  });
  EXPECT_EQ(log,
            "warning: x.yaml:3:4: logging.command: sh has closed its standard input and receives no more events; training continues\n");
}

TEST(EventCommand, AProgramThatDoesNotReadDoesNotBlockAndIsTerminated) {
  auto options = shell("exec sleep 1000");
  options.patience = 300ms;
  options.most_bytes = 1 << 20;
  const auto begin = std::chrono::steady_clock::now();
  const auto log = log_of(options, [](EventCommand& command) {
    const std::string line(999, 'x');
    for (int i = 0; i < 5000; ++i) command.send(line);
  });
  EXPECT_EQ(std::ranges::count(log, '\n'), 2) << log;
  // Without the limit, the program would sleep for a thousand seconds.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 60s);
  EXPECT_THAT(log, StartsWith("warning: x.yaml:3:4: logging.command: sh reads events more slowly than they occur; while 1.0 MiB are "
                              "waiting, further events are dropped, but metrics.jsonl has them; training continues\n"));
  EXPECT_THAT(log, EndsWith("\nwarning: x.yaml:3:4: logging.command: sh is still running 0.3s after the end of the run; terminating it\n"));
}

TEST(EventCommand, TheEndOfAProgramIsNoticedWhereAnotherTakesItsStatus) {
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(log_of(shell("cat >/dev/null"), [](EventCommand&) {}), "");
  ::signal(SIGCHLD, before);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
}

TEST(EventCommand, TheProgramDoesNotGetWhatTheLauncherTellsItsProcesses) {
  const testing::TemporaryFolder folder;
  const auto file = (folder.path() / "variables").string();
  ::setenv("TRAINER_LAUNCHER_TOKEN", "secret", 1);
  ::setenv("TRAINER_TEST_HANDED_ON", "yes", 1);
  log_of(shell("echo ${TRAINER_LAUNCHER_TOKEN-none} $TRAINER_TEST_HANDED_ON >$1; cat >/dev/null", {file}), [](EventCommand&) {});
  ::unsetenv("TRAINER_LAUNCHER_TOKEN");
  ::unsetenv("TRAINER_TEST_HANDED_ON");
  EXPECT_EQ(read_file(file), "none yes\n");
}

TEST(EventCommand, AProgramThatIgnoresItsTerminationIsKilled) {
  auto options = shell("trap '' TERM; while true; do sleep 0.1; done");
  options.patience = 300ms;
  EXPECT_THAT(log_of(options, [](EventCommand&) {}), HasSubstr("; terminating it"));
}

TEST(EventCommand, HasAProcessGroupOfItsOwnAndNoOtherDescriptors) {
  const testing::TemporaryFolder folder;
  // A descriptor like one that a launcher has passed on.
  const Descriptor inherited(::open((folder.path() / "inherited").c_str(), O_WRONLY | O_CREAT, 0644));
  const auto file = (folder.path() / "found").string();
  const std::string script = "{ cut -d ' ' -f 5 /proc/$$/stat; echo $$; [ -e /proc/$$/fd/$1 ] && echo open || echo closed; } >$2";
  log_of(shell(script + "; cat >/dev/null", {std::to_string(inherited.number()), file}), [](EventCommand&) {});
  std::ifstream lines(file);
  std::string group, process, state;
  lines >> group >> process >> state;
  EXPECT_EQ(group, process);
  EXPECT_EQ(state, "closed");
}

TEST(EventCommand, AProgramThatCannotBeStartedIsRefused) {
  const testing::TemporaryFolder folder;
  const std::string begin = "x.yaml:3:4: logging.command: cannot start ";
  const std::string end = "; correct it, or set logging.command=[] to train without it";
  EXPECT_EQ(refusal_of("no_such_program"), begin + "\"no_such_program\": it is not in any absolute folder of PATH" + end);
  EXPECT_EQ(refusal_of("./no_such_program"), begin + "\"./no_such_program\": No such file or directory" + end);
  EXPECT_EQ(refusal_of("/tmp"), begin + "\"/tmp\": Is a directory" + end);
  const auto text = (folder.path() / "text").string();
  std::ofstream(text) << "not a program";
  EXPECT_EQ(refusal_of(text), begin + "\"" + text + "\": Permission denied" + end);
  ASSERT_EQ(::chmod(text.c_str(), 0755), 0);
  EXPECT_EQ(refusal_of(text), begin + "\"" + text + "\": Exec format error" + end);
}

}  // namespace
}  // namespace trainer::reporting::test
