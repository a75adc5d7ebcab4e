#include "reporting/event_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/file.h"
#include "reporting/sinks.h"
#include "tests/testing/hex.h"
#include "tests/testing/metrics.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer::reporting::test {
namespace {

using testing::detail;
using testing::fraction;
using testing::loss;

TEST(EventFile, Crc32cKnownAnswers) {
  EXPECT_EQ(crc32c(""), 0x00000000U);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  // RFC 3720, B.4.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
}

// The expected bytes of these three tests were written by the Python package tensorboard:
//   tensorboard.summary.writer.record_writer.RecordWriter(file).write(data), with data b"123456789" and
//   Event(wall_time=1700000000.5, file_version="brain.Event:2").SerializeToString(),
//   Event(wall_time=1700000001.25, step=300, summary=Summary(value=[Summary.Value(tag="train/loss", simple_value=1.5),
//         Summary.Value(tag="train/lr", simple_value=0.1)])).SerializeToString()
TEST(EventFile, ARecordIsLengthDataAndTheirMaskedChecksums) {
  EXPECT_EQ(testing::hex_of(make_record("123456789")), "090000000000000037f97139313233343536373839e5b08ac7");
}

TEST(EventFile, HasTheBytesThatTensorboardWrites) {
  EXPECT_EQ(testing::hex_of(make_version_event(1700000000.5)),
            "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110");
  EventValues values;
  values.add_scalar("train/loss", 1.5);
  values.add_scalar("train/lr", 0.1);
  EXPECT_EQ(testing::hex_of(make_event(1700000001.25, 300, values)),
            "3200000000000000241956ec0900005040fc54d94110ac022a240a110a0a747261696e2f6c6f7373150000c03f0a0f0a08747261696e2f"
            "6c7215cdcccc3d555fc883");
}

TEST(EventFile, HistogramHasTheBytesThatPythonWrites) {
  EventValues values;
  values.add_histogram("parameters/w",
                       {.name = "w", .min = -1, .max = 2, .sum = 1.5, .sum_squares = 6, .limits = {0.5, 2}, .counts = {3, 1}});
  EXPECT_EQ(testing::hex_of(values.bytes()),
            "0a610a0c706172616d65746572732f772a5109000000000000f0bf11000000000000004019000000000000104021000000000000f83f29000000000000"
            "18403210000000000000e03f00000000000000403a100000000000000840000000000000f03f");
}

TEST(Tensorboard, CreatesItsFolderAndOneFileNamedAfterTheProcess) {
  const testing::TemporaryFolder folder;
  const auto sink = make_tensorboard(folder.path() / "run" / "tensorboard");
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "run" / "tensorboard")) {
    names.push_back(entry.path().filename());
  }
  ASSERT_EQ(names.size(), 1U);
  EXPECT_EQ(names[0].find("events.out.tfevents."), 0U) << names[0];
  EXPECT_TRUE(names[0].ends_with("." + std::to_string(::getpid()))) << names[0];
}

// TensorBoard reads the files in the order of their names, so a new file must be the last one even if the clock was set back.
TEST(Tensorboard, ANewFileSortsAfterTheOthers) {
  const testing::TemporaryFolder folder;
  const auto list = folder.path() / ".list";
  ASSERT_FALSE(WrittenFiles::create(list));
  WrittenFiles written(list);
  const auto in_future = [&](const char* seconds) { return folder.path() / "tb" / fmt::format("events.out.tfevents.{}.other.1", seconds); };
  std::filesystem::create_directories(folder.path() / "tb");
  for (const char* seconds : {"4100000000", "4200000000", "99999999999999", "x"}) std::ofstream(in_future(seconds)) << "";
  make_tensorboard(folder.path() / "tb", &written);
  ASSERT_EQ(written.files().size(), 1U);
  EXPECT_TRUE(written.files().front().filename().string().starts_with("events.out.tfevents.4200000001."));
  EXPECT_TRUE(std::filesystem::exists(written.files().front()));
}

TEST(Tensorboard, OmitsValuesThatAnEventLacks) {
  const testing::TemporaryFolder folder;
  const auto sink = make_tensorboard(folder.path());
  const auto content = [&] { return read_file(std::filesystem::directory_iterator(folder.path())->path()); };
  sink->on_train({.step = 1, .metrics = {loss(1)}});
  sink->on_validation({.step = 1, .metrics = {loss(1), detail("macro_f1", 0.5)}});
  for (const char* tag : {"train/loss", "train/lr", "train/images_per_second", "validation/loss"}) {
    EXPECT_NE(content().find(tag), std::string::npos) << tag;
  }
  EXPECT_EQ(content().find("top"), std::string::npos);
  EXPECT_EQ(content().find("macro_f1"), std::string::npos);
  sink->on_train({.step = 2, .metrics = {loss(1), fraction("top1", 0.5)}});
  EXPECT_EQ(content().find("ema"), std::string::npos);
  sink->on_validation({.step = 2,
                       .metrics = {loss(1), fraction("top1", 0.5), fraction("top5", 0.75)},
                       .ema_metrics = {loss(1), fraction("top1", 0.5), fraction("top5", 0.75)}});
  for (const char* tag :
       {"train/top1", "validation/top1", "validation/top5", "validation/ema_loss", "validation/ema_top1", "validation/ema_top5"})
    EXPECT_NE(content().find(tag), std::string::npos) << tag;
}

TEST(Tensorboard, ErrorNamesAFolderThatCannotBeCreated) {
  const testing::TemporaryFolder folder;
  const LineFile file(folder.path() / "file");
  const auto path = folder.path() / "file" / "tensorboard";
  try {
    make_tensorboard(path);
    FAIL() << "made";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trainer::reporting::test
