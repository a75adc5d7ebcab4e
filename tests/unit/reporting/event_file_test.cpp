#include "reporting/event_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

#include "base/error.h"
#include "reporting/sinks.h"
#include "tests/testing/metrics.h"
#include "tests/testing/temporary_folder.h"

namespace trainer::reporting::test {
namespace {

using testing::detail;
using testing::fraction;
using testing::loss;

std::string event_file_hex(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += kDigits[static_cast<uint8_t>(byte) >> 4];
    text += kDigits[static_cast<uint8_t>(byte) & 15];
  }
  return text;
}

TEST(EventFile, Crc32cKnownAnswers) {
  EXPECT_EQ(crc32c(""), 0x00000000U);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  // RFC 3720, B.4.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
}

// The expected bytes of these two tests were written by the Python package tensorboard:
//   tensorboard.summary.writer.record_writer.RecordWriter(file).write(data), with data b"123456789" and
//   Event(wall_time=1700000000.5, file_version="brain.Event:2").SerializeToString(),
//   Event(wall_time=1700000001.25, step=300, summary=Summary(value=[Summary.Value(tag="train/loss", simple_value=1.5),
//         Summary.Value(tag="train/lr", simple_value=0.1)])).SerializeToString()
TEST(EventFile, ARecordIsLengthDataAndTheirMaskedChecksums) {
  EXPECT_EQ(event_file_hex(make_record("123456789")), "090000000000000037f97139313233343536373839e5b08ac7");
}

TEST(EventFile, HasTheBytesThatTensorboardWrites) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "events.out.tfevents.1.host.2";
  EventFile file(path, 1700000000.5);
  const std::string version = "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110";
  EXPECT_EQ(event_file_hex(read_file(path)), version);
  file.write(1700000001.25, 300, std::array{Scalar{"train/loss", 1.5}, Scalar{"train/lr", 0.1}});
  EXPECT_EQ(event_file_hex(read_file(path)),
            version +
                "3200000000000000241956ec0900005040fc54d94110ac022a240a110a0a747261696e2f6c6f7373150000c03f0a0f0a08747261696e2f"
                "6c7215cdcccc3d555fc883");
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
