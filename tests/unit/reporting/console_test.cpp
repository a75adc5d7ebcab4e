#include <gtest/gtest.h>
#include <pty.h>
#include <spdlog/sinks/ostream_sink.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "base/file.h"
#include "base/log.h"
#include "reporting/sinks.h"
#include "tests/testing/metrics.h"
#include "tests/testing/temporary_folder.h"

namespace trainer::reporting::test {
namespace {

using testing::detail;
using testing::fraction;

const TrainEvent kConsoleInterval = {.epoch = 2,
                                     .num_epochs = 100,
                                     .step = 902,
                                     .step_in_epoch = 120,
                                     .steps_per_epoch = 391,
                                     .metrics = {testing::loss(1.23449), fraction("top1", 0.55211)},
                                     .lr = 0.08,
                                     .images_per_second = 4321.4,
                                     .data_wait = 0.021,
                                     .memory_bytes = 1288490189,
                                     .eta_seconds = 192};
const std::string kConsoleIntervalLine =
    "epoch 3/100  step 120/391  loss 1.2345  top1 55.21%  lr 0.0800  4321 img/s  data 2%  mem 1.2 GiB  ETA 3m12s";
const ValidationEvent kConsoleValidation = {
    .epoch = 2,
    .num_epochs = 100,
    .step = 1173,
    .metrics = {testing::loss(1.0012), fraction("top1", 0.634), fraction("top5", 0.9612), detail("macro_f1", 0.625)},
    .num_samples = 10000,
    .seconds = 2.1};
const std::string kConsoleValidationLine = "validation  epoch 3/100  loss 1.0012  top1 63.40%  top5 96.12%  10000 images  2.1s\n";

const ConsoleOptions kWithBar = {
    .progress = Progress::kBar,
    .metrics = {.train = {testing::loss(0).info, fraction("top1", 0).info},
                .validation = {testing::loss(0).info, fraction("top1", 0).info, fraction("top5", 0).info, detail("macro_f1", 0).info}}};
// The epoch that ends with kConsoleValidation.
EpochEvent console_epoch(bool is_best) {
  EpochEvent event = {.epoch = 2,
                      .num_epochs = 100,
                      .step = 1173,
                      .lr = 0.08,
                      .train_metrics = {testing::loss(1.3), fraction("top1", 0.5)},
                      .seconds = 10,
                      .images_per_second = 4321.4,
                      .validation = kConsoleValidation};
  event.validation->is_best = is_best;
  return event;
}

// The output of `emit` through a plain console.
template <typename Emit>
std::string console_text(Emit emit) {
  std::ostringstream text;
  Logger logger("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text));
  logger.set_pattern("%v");
  emit(*make_console(logger, {}));
  return text.str();
}

struct ConsoleWritten {
  std::string terminal;
  std::string file;
};

// The output of `print` to stderr if that is a terminal of `columns` columns.
template <typename Print>
std::string text_on_terminal(uint16_t columns, Print print) {
  int ours = -1, theirs = -1;
  const winsize size{.ws_row = 40, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  if (::openpty(&ours, &theirs, nullptr, nullptr, &size) != 0) return "no pseudo-terminals here";
  const int before = ::dup(STDERR_FILENO);
  ::dup2(theirs, STDERR_FILENO);
  print();
  std::fflush(stderr);
  ::dup2(before, STDERR_FILENO);
  // Reading ends only when all descriptors of the terminal are closed.
  for (const int descriptor : {theirs, before}) ::close(descriptor);
  std::string text;
  std::array<char, 4096> part;
  for (ssize_t length = 0; (length = ::read(ours, part.data(), part.size())) > 0;) text.append(part.data(), static_cast<size_t>(length));
  ::close(ours);
  std::erase(text, '\r');
  return text;
}

// The output of `emit` on stderr and in the log file.
template <typename Emit>
ConsoleWritten console_written(ConsoleOptions options, Emit emit) {
  const testing::TemporaryFolder folder;
  ::testing::internal::CaptureStderr();
  {
    const auto logger = make_console_logger();
    add_file(*logger, folder.path() / "train.log");
    logger->sinks().back()->set_pattern("%v");
    const auto sink = make_console(*logger, std::move(options));
    emit(*sink, *logger);
  }
  return {::testing::internal::GetCapturedStderr(), read_file(folder.path() / "train.log")};
}

TEST(Console, TheLineOfAnInterval) {
  EXPECT_EQ(console_text([](Sink& sink) { sink.on_train(kConsoleInterval); }), kConsoleIntervalLine + "\n");
}

TEST(Console, WithoutClassesTop1IsOmitted) {
  auto event = kConsoleInterval;
  event.metrics.pop_back();
  EXPECT_EQ(console_text([&](Sink& sink) { sink.on_train(event); }),
            "epoch 3/100  step 120/391  loss 1.2345  lr 0.0800  4321 img/s  data 2%  mem 1.2 GiB  ETA 3m12s\n");
}

TEST(Console, SmallAndLargeValuesStayReadable) {
  const auto line = [](double loss, double lr, double rate) {
    return console_text([&](Sink& sink) { sink.on_train({.metrics = {testing::loss(loss)}, .lr = lr, .images_per_second = rate}); });
  };
  EXPECT_NE(line(1, 1e-5, 1).find("  lr 1.0e-05  1.0 img/s  "), std::string::npos) << line(1, 1e-5, 1);
  EXPECT_NE(line(1, 0, 9.4).find("  lr 0.0000  9.4 img/s  "), std::string::npos) << line(1, 0, 9.4);
  EXPECT_NE(line(1.23456e-7, 0.001, 10).find("  loss 1.2346e-07  lr 0.0010  10 img/s  "), std::string::npos);
  EXPECT_NE(line(1.5e30, 1, 10).find("  loss 1.5000e+30  "), std::string::npos);
  EXPECT_NE(line(std::nan(""), 1, 10).find("  loss nan  "), std::string::npos);
}

TEST(Console, TheLineOfAValidation) {
  EXPECT_EQ(console_text([](Sink& sink) { sink.on_validation(kConsoleValidation); }), kConsoleValidationLine);
  EXPECT_EQ(console_text([](Sink& sink) {
              sink.on_validation({.num_epochs = 1, .metrics = {testing::loss(0.5)}, .num_samples = 7, .seconds = 0.25});
            }),
            "validation  epoch 1/1  loss 0.5000  7 images  0.2s\n");
  auto event = kConsoleValidation;
  event.ema_metrics = {testing::loss(0.875), fraction("top1", 0.65), fraction("top5", 0.97)};
  EXPECT_EQ(console_text([&](Sink& sink) { sink.on_validation(event); }),
            "validation  epoch 3/100  loss 1.0012  top1 63.40%  top5 96.12%  ema_loss 0.8750  ema_top1 65.00%  ema_top5 97.00%  10000 "
            "images  2.1s\n");
}

TEST(Console, TheStartLinesShowDerivedValues) {
  StartEvent event = {.num_epochs = 100, .steps_per_epoch = 391, .world_size = 4, .global_batch_size = 512, .num_parameters = 11173962};
  EXPECT_EQ(console_text([&](Sink& sink) { sink.on_start(event); }),
            "training  100 epochs  391 steps per epoch  global_batch_size 512  world_size 4  11173962 parameters\n");
  event.num_steps = 1000;
  EXPECT_EQ(console_text([&](Sink& sink) { sink.on_start(event); }),
            "training  1000 steps  391 steps per epoch  global_batch_size 512  world_size 4  11173962 parameters\n");
}

TEST(Console, TheEndLinesShowFinalAndBestMetrics) {
  EndEvent event = {.reason = "done", .epoch = 99, .step = 39100, .seconds = 3720, .images_per_second = 4321.4};
  event.monitor = "validation/top1";
  const auto text = [&] { return console_text([&](Sink& sink) { sink.on_end(event); }); };
  EXPECT_EQ(text(), "done  39100 steps  1h02m  4321 img/s\n");
  event.final_validation =
      ValidationEvent{.epoch = 99, .metrics = {testing::loss(0.25), fraction("top1", 0.931), detail("macro_f1", 0.9125)}};
  event.best_validation =
      ValidationEvent{.epoch = 86, .step = 34017, .metrics = {testing::loss(0.2), fraction("top1", 0.934), detail("macro_f1", 0.9375)}};
  EXPECT_EQ(text(), "done  39100 steps  1h02m  4321 img/s\nvalidation/top1  final 93.10%  best 93.40% in epoch 87, step 34017\n");
  event.monitor = "validation/loss";
  EXPECT_EQ(text(), "done  39100 steps  1h02m  4321 img/s\nvalidation/loss  final 0.2500  best 0.2000 in epoch 87, step 34017\n");
  event.monitor = "validation/macro_f1";
  EXPECT_EQ(text(), "done  39100 steps  1h02m  4321 img/s\nvalidation/macro_f1  final 0.9125  best 0.9375 in epoch 87, step 34017\n");
}

TEST(Console, PlainLinesGoToTerminalAndFile) {
  const auto written = console_written({}, [](Sink& sink, Logger&) {
    sink.on_train(kConsoleInterval);
    sink.on_step(120, 391);
  });
  EXPECT_EQ(written.terminal, kConsoleIntervalLine + "\n");
  EXPECT_EQ(written.file, kConsoleIntervalLine + "\n");
}

TEST(Console, TheProgressOfAnIntervalIsALine) {
  const auto written = console_written({}, [](Sink& sink, Logger&) { sink.on_progress(kConsoleInterval); });
  EXPECT_EQ(written.terminal, kConsoleIntervalLine + "\n");
  const auto with_bar = console_written(kWithBar, [](Sink& sink, Logger&) {
    sink.on_progress(kConsoleInterval);
    sink.on_step(120, 391);
  });
  EXPECT_EQ(with_bar.terminal, "\r\x1b[K 31% [===       ]  epoch 3/100  loss 1.2345  top1 55.21%  4321 img/s  ETA 3m12s\r\x1b[K");
  EXPECT_EQ(with_bar.file, kConsoleIntervalLine + "\n");
}

TEST(Console, ALongValidationHasLinesOrABar) {
  const auto validate = [](Sink& sink, Logger&) {
    sink.on_train(kConsoleInterval);
    sink.on_validation_step(2500, 10000);
    sink.on_validation_step(10000, 10000);
  };
  const std::string lines = "validation  epoch 3/100  2500/10000 images\nvalidation  epoch 3/100  10000/10000 images\n";
  EXPECT_EQ(console_written({}, validate).terminal, kConsoleIntervalLine + "\n");
  EXPECT_EQ(console_written({.longest_silence = std::chrono::seconds(0)}, validate).terminal, kConsoleIntervalLine + "\n" + lines);
  auto options = kWithBar;
  EXPECT_EQ(console_written(options, validate).terminal,
            "\r\x1b[K 25% [=====               ]  validation  epoch 3/100  2500/10000 images\r\x1b[K");
  options.longest_silence = std::chrono::seconds(0);
  EXPECT_EQ(console_written(options, validate).file, kConsoleIntervalLine + "\n" + lines);
}

TEST(Console, WithoutProgressTrainingLinesAreOnlyInTheFile) {
  const auto written = console_written({.progress = Progress::kNone}, [](Sink& sink, Logger&) {
    sink.on_train(kConsoleInterval);
    sink.on_step(120, 391);
    sink.on_validation(kConsoleValidation);
  });
  EXPECT_EQ(written.terminal, kConsoleValidationLine);
  EXPECT_EQ(written.file, kConsoleIntervalLine + "\n" + kConsoleValidationLine);
}

TEST(Console, TheBarIsErasedBeforeEachLineAndReturnsWithTheNextStep) {
  const std::string bar = " 31% [===       ]  epoch 3/100  loss 1.2345  top1 55.21%  4321 img/s  ETA 3m12s";
  const auto written = console_written(kWithBar, [](Sink& sink, Logger& logger) {
    sink.on_train(kConsoleInterval);
    sink.on_step(120, 391);
    logger.warn("a slow disk");
    sink.on_warning({.epoch = 2, .step = 902, .message = "a slow rank"});
    sink.on_step(120, 391);
    sink.on_end({.reason = "done", .step = 391, .seconds = 1, .images_per_second = 10});
  });
  EXPECT_EQ(written.terminal, "\r\x1b[K" + bar +                                          //
                                  "\r\x1b[Kwarning: a slow disk\nwarning: a slow rank\n"  //
                                  "\r\x1b[K" +
                                  bar + "\r\x1b[Kdone  391 steps  1.0s  10 img/s\n");
  EXPECT_EQ(written.file, kConsoleIntervalLine + "\na slow disk\na slow rank\ndone  391 steps  1.0s  10 img/s\n");
}

const std::string kConsoleHeading =
    "* best     ---- train -----  ------ validation -------\n"
    "    epoch     loss     top1     loss     top1     top5       lr    time   img/s\n";

TEST(Console, AnEpochIsARowAboveTheBar) {
  auto end_of_epoch = kConsoleInterval;
  end_of_epoch.step_in_epoch = 391;
  const auto written = console_written(kWithBar, [&](Sink& sink, Logger&) {
    sink.on_step(390, 391);
    sink.on_train(end_of_epoch);
    sink.on_step(391, 391);
    sink.on_validation(kConsoleValidation);
    sink.on_checkpoint({.file = "a.pt", .num_bytes = 2048});
    sink.on_epoch(console_epoch(true));
    sink.on_epoch(console_epoch(false));
  });
  // The progress bar stays during the validation.
  EXPECT_EQ(written.terminal,
            "\r\x1b[K100% [=================== ]  step 390/391"
            "\r\x1b[K100% [==========]  epoch 3/100  loss 1.2345  top1 55.21%  4321 img/s  ETA 3m12s\r\x1b[K" +
                kConsoleHeading +
                "*   3/100   1.3000   50.00%   1.0012   63.40%   96.12%   0.0800   12.1s    4321\n"
                "    3/100   1.3000   50.00%   1.0012   63.40%   96.12%   0.0800   12.1s    4321\n");
  EXPECT_EQ(written.file, console_text([&](Sink& sink) {
              sink.on_train(end_of_epoch);
              sink.on_validation(kConsoleValidation);
              sink.on_checkpoint({.file = "a.pt", .num_bytes = 2048});
            }));
}

TEST(Console, AValidationWithinAnEpochHasALineOfItsOwn) {
  auto event = kConsoleValidation;
  event.is_within_epoch = true;
  event.step = 900;
  const auto line = [&] { return console_written(kWithBar, [&](Sink& sink, Logger&) { sink.on_validation(event); }).terminal; };
  EXPECT_EQ(line(), "validation  epoch 3/100  step 900  loss 1.0012  top1 63.40%  top5 96.12%  10000 images  2.1s\n");
  event.is_best = true;
  EXPECT_EQ(line(), "validation  epoch 3/100  step 900  loss 1.0012  top1 63.40%  top5 96.12%  best so far  10000 images  2.1s\n");
}

TEST(Console, AQuietOneShowsOnlyTheEnd) {
  const auto next = [](const EndEvent&) { return std::vector<std::string>{"to predict: trainer"}; };
  const auto written = console_written({.progress = Progress::kNone, .is_quiet = true, .what_next = next}, [](Sink& sink, Logger& logger) {
    logger.sinks().front()->set_level(spdlog::level::warn);
    sink.on_start({});
    sink.on_train(kConsoleInterval);
    sink.on_validation(kConsoleValidation);
    sink.on_checkpoint({.file = "a.pt"});
    sink.on_warning({.message = "a slow rank"});
    sink.on_end({.reason = "done", .step = 391, .seconds = 1, .images_per_second = 10});
  });
  EXPECT_EQ(written.terminal, "warning: a slow rank\ndone  391 steps  1.0s  10 img/s\n");
  EXPECT_NE(written.file.find(kConsoleIntervalLine + "\n" + kConsoleValidationLine), std::string::npos) << written.file;
  EXPECT_TRUE(written.file.ends_with("\nto predict: trainer\n")) << written.file;
}

TEST(Console, AVerboseOneShowsCheckpointsAboveTheBar) {
  auto options = kWithBar;
  options.is_verbose = true;
  const auto written = console_written(options, [](Sink& sink, Logger&) { sink.on_checkpoint({.file = "a.pt", .num_bytes = 2048}); });
  EXPECT_EQ(written.terminal, "checkpoint  a.pt  2.0 KiB  written in 0.00 s, training paused for 0.000 s\n");
}

TEST(Console, TheEndSaysWhyTrainingEndedEarlyAndWhatIsNext) {
  const EndEvent event = {.reason = "done", .message = "no better for 5 epochs", .step = 391, .seconds = 1, .images_per_second = 10};
  const ConsoleOptions options = {.what_next = [](const EndEvent& end) { return std::vector<std::string>{end.reason + ": next"}; }};
  const auto written = console_written(options, [&](Sink& sink, Logger&) { sink.on_end(event); });
  EXPECT_EQ(written.terminal, "done  391 steps  1.0s  10 img/s  no better for 5 epochs\ndone: next\n");
  EXPECT_EQ(written.file, written.terminal);
  const auto failed =
      console_text([](Sink& sink) { sink.on_end({.reason = "failed", .message = "a full disk", .images_per_second = 10}); });
  EXPECT_EQ(failed, "failed  0 steps  0.0s  10 img/s\n");
}

TEST(Console, TheBarShowsOnlyTheStepBeforeTheFirstInterval) {
  const auto written = console_written({.progress = Progress::kBar, .colour = true}, [](Sink& sink, Logger&) { sink.on_step(1, 4); });
  EXPECT_EQ(written.terminal, "\r\x1b[K\x1b[2m 25% [=====               ]\x1b[0m  step 1/4\r\x1b[K");
}

TEST(Console, TheBarFollowsTheEpoch) {
  const auto written = console_written(kWithBar, [](Sink& sink, Logger&) {
    sink.on_train(kConsoleInterval);
    sink.on_epoch({.epoch = 2});
    sink.on_step(1, 391);
  });
  EXPECT_NE(written.terminal.find("\n\r\x1b[K  0% [          ]  epoch 4/100  loss 1.2345"), std::string::npos) << written.terminal;
}

TEST(Console, LinesFitTheirTerminal) {
  const CheckpointEvent checkpoint = {.file = "runs/my_experiment/with_a_long_name/of_its_folder/checkpoints/step_00001173.pt",
                                      .num_bytes = 2048};
  auto end_of_epoch = kConsoleInterval;
  end_of_epoch.step_in_epoch = 391;
  const auto shown = [&](Progress progress, uint16_t columns) {
    return text_on_terminal(columns, [&] {
      const auto logger = make_console_logger();
      auto options = kWithBar;
      options.progress = progress;
      options.is_verbose = true;
      const auto sink = make_console(*logger, options);
      sink->on_start({.num_epochs = 100, .steps_per_epoch = 391, .world_size = 4, .global_batch_size = 512, .num_parameters = 11173962});
      sink->on_train(end_of_epoch);
      sink->on_validation(kConsoleValidation);
      sink->on_epoch(console_epoch(false));
      sink->on_checkpoint(checkpoint);
    });
  };
  EXPECT_EQ(shown(Progress::kBar, 80),
            "training  100 epochs  391 steps per epoch  global_batch_size 512  world_size 4\n"
            "  11173962 parameters\n" +
                kConsoleHeading +
                "    3/100   1.3000   50.00%   1.0012   63.40%   96.12%   0.0800   12.1s    4321\n"
                "checkpoint  step_00001173.pt  2.0 KiB\n");
  EXPECT_EQ(shown(Progress::kPlain, 80),
            "training  100 epochs  391 steps per epoch  global_batch_size 512  world_size 4\n"
            "  11173962 parameters\n"
            "epoch 3/100  step 391/391  loss 1.2345  top1 55.21%  4321 img/s  ETA 3m12s\n"
            "validation  epoch 3/100  loss 1.0012  top1 63.40%  top5 96.12%  2.1s\n"
            "checkpoint  step_00001173.pt  2.0 KiB\n");
  EXPECT_EQ(
      shown(Progress::kPlain, 200),
      "training  100 epochs  391 steps per epoch  global_batch_size 512  world_size 4  11173962 parameters\n"
      "epoch 3/100  step 391/391  loss 1.2345  top1 55.21%  lr 0.0800  4321 img/s  data 2%  mem 1.2 GiB  ETA 3m12s\n"
      "validation  epoch 3/100  loss 1.0012  top1 63.40%  top5 96.12%  10000 images  2.1s\n"
      "checkpoint  runs/my_experiment/with_a_long_name/of_its_folder/checkpoints/step_00001173.pt  2.0 KiB  written in 0.00 s, training "
      "paused for 0.000 s\n");
}

TEST(Console, RestoresTheLoggersTerminal) {
  const auto logger = make_console_logger();
  const auto terminal = logger->sinks().front();
  {
    const auto sink = make_console(*logger, kWithBar);
    EXPECT_NE(logger->sinks().front(), terminal);
  }
  EXPECT_EQ(logger->sinks().front(), terminal);
}

}  // namespace
}  // namespace trainer::reporting::test
