#include "datasets/lmdb.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libdeflate.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "base/log.h"
#include "datasets/lmdb_file.h"
#include "tests/testing/file_size_limit.h"
#include "tests/unit/datasets/failure_of.h"
#include "tests/unit/datasets/packed_folder.h"
#include "tests/unit/datasets/small_files.h"
#include "trainer/error.h"

namespace trainer::datasets::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr auto kPackAgain = "; copy the folder again, or pack the data set again";

TEST_F(LmdbTest, GivesBackWhatWasPacked) {
  const std::string planar = "rrggbb";
  const std::string interleaved = "rgbrgbrgb";
  const PackSource source;
  pack(source, {file_entry_of("a file"), pixels_entry(data::ImageView::whole(as_bytes(planar).data(), 3, 1, 2)),
                pixels_entry(data::ImageView::whole(as_bytes(interleaved).data(), 3, 3, 1, data::PixelOrder::kInterleaved))});
  const auto made = factory();
  EXPECT_EQ(made.missing, "");
  EXPECT_FALSE(made.has_validation);
  EXPECT_EQ(made.default_transforms.train, "[random_horizontal_flip]");
  EXPECT_THAT(made.info.shape, ElementsAre(3, data::kAnySize, data::kAnySize));
  const auto dataset = open();
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_THAT(dataset->info().class_names, ElementsAre("cat", "dog"));
  data::Scratch scratch;
  EXPECT_EQ(as_text(dataset->read(0, scratch).encoded), "a file");
  const auto second = dataset->read(1, scratch).image;
  EXPECT_EQ(second, data::ImageView::whole(second.pixels, 3, 1, 2));
  EXPECT_EQ(as_text({second.pixels, planar.size()}), planar);
  const auto third = dataset->read(2, scratch).image;
  EXPECT_EQ(third, data::ImageView::whole(third.pixels, 3, 3, 1, data::PixelOrder::kInterleaved));
  EXPECT_EQ(as_text({third.pixels, interleaved.size()}), interleaved);
  EXPECT_EQ(dataset->read(2, scratch).image.pixels, third.pixels) << "pixels are not copied";
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(dataset->read(i, scratch).target.label, source.label(i));
    EXPECT_EQ(dataset->origin(i).name, source.origin(i).name);
    EXPECT_NO_THROW(dataset->check(i));
    dataset->prefetch(i);
  }
}

TEST_F(LmdbTest, ASampleThatCouldNotBeReadKeepsItsPlace) {
  pack({}, {file_entry_of("one"), unreadable_entry("the file is empty"), file_entry_of("three")});
  const auto dataset = open();
  data::Scratch scratch;
  EXPECT_THAT([&] { dataset->read(1, scratch); }, ThrowsMessage<std::runtime_error>("the file is empty"));
  EXPECT_EQ(as_text(dataset->read(2, scratch).encoded), "three");
}

TEST_F(LmdbTest, ManyThreadsReadAtOnce) {
  constexpr int kNumSamples = 200;
  constexpr int kNumThreads = 8;
  PackSource source;
  source.pack.num_samples = kNumSamples;
  source.labels.assign(kNumSamples, 1);
  source.names.assign(kNumSamples, "");
  const auto content_of = [](int i) { return std::string(static_cast<size_t>(1 + 37 * i), static_cast<char>(i)); };
  std::vector<std::string> entries;
  for (int i = 0; i < kNumSamples; ++i) entries.push_back(file_entry_of(content_of(i)));
  pack(source, entries);
  const auto dataset = open();
  std::vector<std::vector<std::span<const uint8_t>>> seen(kNumThreads);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kNumThreads; ++t) {
      threads.emplace_back([&, t] {
        data::Scratch scratch;
        for (int i = 0; i < kNumSamples; ++i) {
          const int index = (i * 7 + t * 31) % kNumSamples;
          dataset->prefetch(index);
          seen[static_cast<size_t>(t)].push_back(dataset->read(index, scratch).encoded);
        }
      });
    }
  }
  // The views that the threads have read stay valid.
  for (int t = 0; t < kNumThreads; ++t) {
    for (int i = 0; i < kNumSamples; ++i) {
      ASSERT_EQ(as_text(seen[static_cast<size_t>(t)][static_cast<size_t>(i)]), content_of((i * 7 + t * 31) % kNumSamples));
    }
  }
}

TEST_F(LmdbTest, AnInterruptedPackingContinues) {
  const PackSource source;
  {
    PackWriter writer(root() / "train", source.pack, source);
    EXPECT_EQ(writer.num_written(), 0);
    writer.add(file_entry_of("one"));
    writer.add(file_entry_of(std::string(3 << 20, '2')));
    writer.commit();
    writer.add(file_entry_of("lost, as by kill -9"));
    EXPECT_EQ(writer.num_written(), 3);
  }
  EXPECT_EQ(missing(), data_file() + " has 2 of 3 samples" + kPackAgain);
  PackWriter writer(root() / "train", source.pack, source);
  EXPECT_EQ(writer.num_written(), 2);
  writer.add(file_entry_of("three"));
  writer.commit();
  const auto dataset = open();
  data::Scratch scratch;
  EXPECT_EQ(as_text(dataset->read(1, scratch).encoded), std::string(3 << 20, '2'));
  EXPECT_EQ(as_text(dataset->read(2, scratch).encoded), "three");
}

TEST_F(LmdbTest, AnotherSourceOrOtherOptionsDoNotContinue) {
  pack({}, {});
  const auto refusal_of = [this](const auto& change) -> std::string {
    PackSource source;
    change(source);
    try {
      PackWriter(root() / "train", source.pack, source);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(refusal_of([](PackSource&) {}), "no error");
  const auto refused =
      (root() / "train").string() + " was begun with other samples or options; continue with the original settings, or remove that folder";
  EXPECT_EQ(refusal_of([](PackSource& source) { source.pack.options.raw = true; }), refused);
  EXPECT_EQ(refusal_of([](PackSource& source) { source.pack.samples.class_names[1] = "owl"; }), refused);
  EXPECT_EQ(refusal_of([](PackSource& source) {
              source.labels.push_back(0);
              source.names.emplace_back("e.jpg");
              source.pack.num_samples = 4;
            }),
            refused);
  EXPECT_EQ(refusal_of([](PackSource& source) { source.names[1] = "bb.jpg"; }), refused);
  EXPECT_EQ(refusal_of([](PackSource& source) { source.labels[2] = 0; }), refused);
}

TEST_F(LmdbTest, DamageOfSamplesIsFound) {
  const std::string pixels(3 * 8 * 8, 'p');
  pack({}, {file_entry_of("one"), pixels_entry(data::ImageView::whole(as_bytes(pixels).data(), 3, 8, 8)), file_entry_of("three")});
  replace("ppppp", "qpppp");
  replace("three", "treee");
  const auto dataset = open();
  data::Scratch scratch;
  EXPECT_NO_THROW(dataset->check(0));
  EXPECT_NO_THROW(dataset->read(1, scratch)) << "training does not compare the checksums of pixels";
  const auto wrong = ThrowsMessage<std::runtime_error>("it is damaged: its checksum is wrong");
  EXPECT_THAT([&] { dataset->check(1); }, wrong);
  EXPECT_THAT([&] { dataset->check(2); }, wrong);
  EXPECT_THAT([&] { dataset->read(2, scratch); }, wrong);
}

TEST(LmdbFormat, MalformedEntriesAreRefused) {
  const std::string pixels(6, 'p');
  auto entry = pixels_entry(data::ImageView::whole(as_bytes(pixels).data(), 3, 1, 2));
  finish_entry(entry, 7);
  const auto refusal_of = [](const std::string& changed, int64_t index = 7) -> std::string {
    try {
      read_entry({as_bytes(changed), index});
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal_of(entry), "");
  EXPECT_EQ(refusal_of(entry.substr(0, 15)), "its entry is damaged: it has only 15 bytes");
  EXPECT_EQ(refusal_of(entry + "p"), "it is damaged: its number of bytes does not match its height, width and channels");
  auto wide = entry;
  wide[15] = '\x7f';
  EXPECT_EQ(refusal_of(wide), "it is damaged: its number of bytes does not match its height, width and channels");
  auto unknown = entry;
  unknown[4] = '\7';
  EXPECT_EQ(refusal_of(unknown), "it is damaged: its entry is of an unknown kind");
  auto empty = file_entry({});
  finish_entry(empty, 7);
  EXPECT_EQ(refusal_of(empty), "it is damaged: its file is empty");
  auto file = file_entry(as_bytes(pixels));
  finish_entry(file, 7);
  EXPECT_EQ(refusal_of(file), "");
  EXPECT_EQ(refusal_of(file, 8), "it is damaged: its checksum is wrong") << "the entry of another sample";
}

TEST(LmdbFormat, KeysHaveTheOrderOfTheSamples) {
  EXPECT_EQ(sample_key(17, 1000), "00000017");
  EXPECT_EQ(sample_key(99'999'999, 100'000'000), "99999999");
  EXPECT_EQ(sample_key(17, 100'000'001), "000000017");
  EXPECT_LT(kInfoKey, std::string_view("0"));
}

TEST_F(LmdbTest, MissingAndUnfinishedFoldersAreExplained) {
  EXPECT_EQ(missing(), "there is no " + data_file() + "; set dataset.root to a folder written by `trainer data pack`");
  pack_files();
  const auto made = factory();
  EXPECT_EQ(failure_of(made, data::Split::kValidation),
            "dataset.root: there is no " + data_file("val") + "; set dataset.root to a folder written by `trainer data pack`");
  write_bytes(root() / "unfinished", "");
  EXPECT_EQ(missing(),
            root().string() +
                " is not complete; run the same `trainer data pack` command again to continue (it removes the file unfinished at the end)");
}

TEST_F(LmdbTest, FilesThatAreNoPackedDataSetAreExplained) {
  write_bytes(data_file(), std::string(20000, 'x'));
  EXPECT_EQ(missing(), "cannot read " + data_file() + ": it is not an LMDB file, or its beginning is damaged" + kPackAgain);
  write_bytes(data_file(), "");
  EXPECT_EQ(missing(), "cannot read " + data_file() + ": it is empty" + kPackAgain);
  std::filesystem::remove(data_file());
  std::filesystem::create_directories(data_file());
  EXPECT_EQ(missing(), "cannot read " + data_file() + ": it is a folder, not a regular file" + kPackAgain);
  std::filesystem::remove(data_file());
  {
    LmdbFile writer(root() / "train", LmdbFile::Access::kWrite);
    const std::vector<std::pair<std::string, std::string>> entries = {{"key", "value"}};
    writer.append(entries);
  }
  EXPECT_EQ(missing(), data_file() + " cannot be used: it was not written by `trainer data pack`" + kPackAgain);
}

TEST_F(LmdbTest, ATruncatedFileIsRefused) {
  pack({}, {file_entry_of("one"), file_entry_of("two"), file_entry_of(std::string(50000, '3'))});
  const auto num_bytes = std::filesystem::file_size(data_file());
  std::filesystem::resize_file(data_file(), num_bytes - 1);
  EXPECT_EQ(missing(), "cannot read " + data_file() + ": it has only " + std::to_string(num_bytes - 1) + " of " +
                           std::to_string(num_bytes) + " bytes" + kPackAgain);
}

TEST_F(LmdbTest, OtherVersionsAndDamageOfTheDescriptionAreRefused) {
  pack_files();
  replace("\"version\": 1", "\"version\": 2");
  EXPECT_EQ(missing(), data_file() + " cannot be used: it has version 2 of the format, but this program reads only version 1" + kPackAgain);
  replace("\"version\": 2", "\"version\": 1");
  replace("trainer packed", "another packed");
  EXPECT_EQ(missing(), data_file() + " cannot be used: it was not written by `trainer data pack`" + kPackAgain);
  replace("another packed", "trainer packed");
  replace("\"num_samples\"", "\"num_sample?\"");
  EXPECT_EQ(missing(), data_file() + " cannot be used: its entry #info is damaged" + kPackAgain);
  replace("\"num_sample?\"", "\"num_samples\"");
  EXPECT_EQ(factory().missing, "");
  const auto wrong = data_file() + " cannot be used: the checksums of its entries #info, #labels and #names are wrong" + kPackAgain;
  replace("\"cat\"", "\"bat\"");
  EXPECT_EQ(missing(), wrong);
  replace("\"bat\"", "\"cat\"");
  replace("b.jpg", "d.jpg");
  EXPECT_EQ(missing(), wrong);
  replace("d.jpg", "b.jpg");
  const auto label = [](char value) { return value + std::string(7, '\0'); };
  replace(label(1) + label(0) + label(1), label(1) + label(1) + label(1));
  EXPECT_EQ(missing(), wrong);
}

TEST_F(LmdbTest, EntriesThatAreMissingAreNoticed) {
  using Entries = std::vector<std::pair<std::string, std::string>>;
  const auto write = [this](const std::string& labels) {
    std::filesystem::remove_all(root());
    Entries entries = {{"00000000", file_entry_of("one")}, {"00000001", file_entry_of("two")}, {"00000003", file_entry_of("three")}};
    for (size_t i = 0; i < entries.size(); ++i) finish_entry(entries[i].second, static_cast<int64_t>(i));
    const auto info = to_json(PackSource().pack);
    entries.insert(entries.begin(),
                   {{"#checksums", checksums_entry(info, labels, "")}, {"#info", info}, {"#labels", labels}, {"#names", ""}});
    LmdbFile(root() / "train", LmdbFile::Access::kWrite).append(entries);
  };
  write(std::string(3 * 8, '\0'));
  const auto dataset = open();
  data::Scratch scratch;
  EXPECT_NO_THROW(dataset->read(1, scratch));
  EXPECT_THAT([&] { dataset->read(2, scratch); }, ThrowsMessage<std::runtime_error>("it is damaged: its entry is missing"));
  dataset->prefetch(2);
  EXPECT_EQ(dataset->describe(2), "sample 2");
  write(std::string(3 * 8 - 1, '\0'));
  EXPECT_EQ(missing(), data_file() + " cannot be used: its entry #labels is damaged" + kPackAgain);
}

// Samples with two numbers each.
class NumberSource : public PackSource {
 public:
  NumberSource() {
    pack.samples.num_classes = 0;
    pack.samples.class_names = {};
    pack.samples.num_targets = 2;
  }
  data::Target target(int64_t index, data::Scratch& scratch) const override {
    scratch.targets = {1.7e9 + static_cast<double>(index) / 4, 0.1};
    return {.values = scratch.targets};
  }
};

TEST_F(LmdbTest, NumbersAsTargetsKeepAllDigits) {
  const NumberSource source;
  pack(source, {file_entry_of("one"), file_entry_of("two"), file_entry_of("three")});
  EXPECT_THAT(open()->target_values(2), ElementsAre(1.7e9 + 0.5, 0.1));
}

TEST_F(LmdbTest, SplitsOfDifferentDataSetsAreRefused) {
  pack_files();
  PackSource other;
  other.pack.samples.class_names[0] = "owl";
  pack(other, {file_entry_of("one"), file_entry_of("two"), file_entry_of("three")}, "val");
  const auto made = factory();
  EXPECT_TRUE(made.has_validation);
  EXPECT_EQ(failure_of(made, data::Split::kValidation),
            "dataset.root: the images in " + (root() / "val").string() +
                " differ in classes, targets, shape, mode or orientation from those that " + (root() / "train").string() +
                " contained when the program started; start the program again, or pack the data set again");
}

TEST_F(LmdbTest, WhatWasWrittenBeforeAFullDiskStays) {
  const PackSource source;
  {
    PackWriter writer(root() / "train", source.pack, source);
    writer.add(file_entry_of("one"));
    writer.commit();
    const trainer::testing::FileSizeLimit limit(1 << 20);
    writer.add(file_entry_of(std::string(2 << 20, '2')));
    EXPECT_THAT([&] { writer.commit(); },
                ThrowsMessage<Error>("cannot write " + data_file() +
                                     ": Input/output error (the disk may be full); fix this, and run the same command again to "
                                     "continue"));
  }
  EXPECT_EQ(PackWriter(root() / "train", source.pack, source).num_written(), 1);
}

}  // namespace
}  // namespace trainer::datasets::test
