#include "datasets/lmdb.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libdeflate.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/little_endian.h"
#include "base/log.h"
#include "datasets/lmdb_writer.h"
#include "tests/testing/file_size_limit.h"
#include "tests/testing/temporary_folder.h"
#include "tests/unit/datasets/failure_of.h"
#include "tests/unit/datasets/small_files.h"

namespace trainer::datasets::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr auto kPackAgain = "; copy the folder again, or pack the data set again";

// Labels and names; the samples' entries are made by the tests.
class Source : public input::Dataset {
 public:
  const input::DatasetInfo& info() const override { return pack.samples; }
  int64_t size() const override { return static_cast<int64_t>(labels.size()); }
  input::Sample read(int64_t, input::Scratch&) const override { throw std::logic_error("packing reads no samples for their labels"); }
  int64_t label(int64_t index) const override { return labels[static_cast<size_t>(index)]; }
  std::string name(int64_t index) const override { return names[static_cast<size_t>(index)]; }

  std::vector<int64_t> labels = {1, 0, 1};
  std::vector<std::string> names = {"a.jpg", "b.jpg", "c d.jpg"};
  PackInfo pack{.source = "image_folder",
                .num_samples = 3,
                .samples = {.shape = {3, input::kAnySize, input::kAnySize}, .num_classes = 2, .class_names = {"cat", "dog"}},
                .transforms = {.train = "[random_horizontal_flip]", .validation = "[]"},
                .options = {}};
};

std::span<const uint8_t> as_bytes(const std::string& text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }
std::string as_text(std::span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }
std::string file_entry_of(const std::string& content) { return file_entry(as_bytes(content)); }
// As the first version of this program wrote it: a header without the sample's index.
std::string version_1_entry_of(const std::string& content) {
  auto entry = file_entry_of(content);
  std::string checksum;
  little_endian::append(checksum, libdeflate_crc32(0, entry.data() + 4, entry.size() - 4));
  return entry.replace(0, 4, checksum);
}

class LmdbTest : public ::testing::Test {
 protected:
  std::filesystem::path root() const { return folder_.path() / "packed"; }
  std::string data_file(const char* split = "train") const { return (root() / split / "data.mdb").string(); }

  void pack(const Source& source, const std::vector<std::string>& entries, const char* split = "train") const {
    PackWriter writer(root() / split, source.pack, source);
    for (const auto& entry : entries) writer.add(entry);
    writer.commit();
  }
  void pack_files(const char* split = "train") const {
    pack({}, {file_entry_of("one"), file_entry_of("two"), file_entry_of("three")}, split);
  }
  DatasetFactory factory() const {
    LmdbOptions options;
    options.root = root().string();
    return lmdb_factory(options);
  }
  std::unique_ptr<input::Dataset> open(Split split = Split::kTrain) const { return factory().open(split, *make_quiet_logger()); }
  // Why the data set cannot be used.
  std::string missing() const {
    const auto made = factory();
    EXPECT_EQ(made.info.num_classes, input::kUnknownClasses);
    EXPECT_EQ(failure_of(made, Split::kTrain), "dataset.root: " + made.missing);
    return made.missing;
  }
  // Replaces these bytes in the file by as many others, also in pages that LMDB no longer uses.
  void replace(const std::string& before, const std::string& after) const {
    auto content = read_file(data_file());
    ASSERT_NE(content.find(before), content.npos);
    for (size_t at = 0; (at = content.find(before, at)) != content.npos; at += after.size()) content.replace(at, after.size(), after);
    write_bytes(data_file(), content);
  }

 private:
  trainer::testing::TemporaryFolder folder_;
};

TEST_F(LmdbTest, GivesBackWhatWasPacked) {
  const std::string planar = "rrggbb";
  const std::string interleaved = "rgbrgbrgb";
  const Source source;
  pack(source, {file_entry_of("a file"), pixels_entry(input::ImageView::whole(as_bytes(planar).data(), 3, 1, 2)),
                pixels_entry(input::ImageView::whole(as_bytes(interleaved).data(), 3, 3, 1, input::PixelOrder::kInterleaved))});
  const auto made = factory();
  EXPECT_EQ(made.missing, "");
  EXPECT_FALSE(made.has_validation);
  EXPECT_EQ(made.default_transforms.train, "[random_horizontal_flip]");
  EXPECT_THAT(made.info.shape, ElementsAre(3, input::kAnySize, input::kAnySize));
  const auto dataset = open();
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_THAT(dataset->info().class_names, ElementsAre("cat", "dog"));
  input::Scratch scratch;
  EXPECT_EQ(as_text(dataset->read(0, scratch).encoded), "a file");
  const auto second = dataset->read(1, scratch).image;
  EXPECT_EQ(second, input::ImageView::whole(second.pixels, 3, 1, 2));
  EXPECT_EQ(as_text({second.pixels, planar.size()}), planar);
  const auto third = dataset->read(2, scratch).image;
  EXPECT_EQ(third, input::ImageView::whole(third.pixels, 3, 3, 1, input::PixelOrder::kInterleaved));
  EXPECT_EQ(as_text({third.pixels, interleaved.size()}), interleaved);
  EXPECT_EQ(dataset->read(2, scratch).image.pixels, third.pixels) << "pixels are not copied";
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(dataset->read(i, scratch).label, source.label(i));
    EXPECT_EQ(dataset->name(i), source.name(i));
    EXPECT_NO_THROW(dataset->check(i));
    dataset->prefetch(i);
  }
}

TEST_F(LmdbTest, ASampleThatCouldNotBeReadKeepsItsPlace) {
  pack({}, {file_entry_of("one"), unreadable_entry("the file is empty"), file_entry_of("three")});
  const auto dataset = open();
  input::Scratch scratch;
  EXPECT_THAT([&] { dataset->read(1, scratch); }, ThrowsMessage<std::runtime_error>("the file is empty"));
  EXPECT_EQ(as_text(dataset->read(2, scratch).encoded), "three");
}

TEST_F(LmdbTest, ManyThreadsReadAtOnce) {
  constexpr int kNumSamples = 200;
  constexpr int kNumThreads = 8;
  Source source;
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
        input::Scratch scratch;
        for (int i = 0; i < kNumSamples; ++i) {
          const int index = (i * 7 + t * 31) % kNumSamples;
          dataset->prefetch(index);
          seen[static_cast<size_t>(t)].push_back(dataset->read(index, scratch).encoded);
        }
      });
    }
  }
  // The views of all threads stay valid.
  for (int t = 0; t < kNumThreads; ++t) {
    for (int i = 0; i < kNumSamples; ++i) {
      ASSERT_EQ(as_text(seen[static_cast<size_t>(t)][static_cast<size_t>(i)]), content_of((i * 7 + t * 31) % kNumSamples));
    }
  }
}

TEST_F(LmdbTest, AnInterruptedPackingContinues) {
  const Source source;
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
  input::Scratch scratch;
  EXPECT_EQ(as_text(dataset->read(1, scratch).encoded), std::string(3 << 20, '2'));
  EXPECT_EQ(as_text(dataset->read(2, scratch).encoded), "three");
}

TEST_F(LmdbTest, AnotherSourceOrOtherOptionsDoNotContinue) {
  pack({}, {});
  const auto refusal_of = [this](const auto& change) -> std::string {
    Source source;
    change(source);
    try {
      PackWriter(root() / "train", source.pack, source);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  const auto message = [this](const std::string& what) {
    return (root() / "train").string() + " was begun with " + what + "; continue as it was begun, or remove that folder";
  };
  EXPECT_EQ(refusal_of([](Source&) {}), "no error");
  EXPECT_EQ(refusal_of([](Source& source) { source.pack.transforms.train = "[]"; }), "no error");
  EXPECT_EQ(refusal_of([](Source& source) { source.pack.source = "csv"; }), message("dataset.name: image_folder, not with csv"));
  EXPECT_EQ(refusal_of([](Source& source) { source.pack.options.raw = true; }),
            message("no --raw and no --resize, not with --raw and no --resize"));
  EXPECT_EQ(refusal_of([](Source& source) { source.pack.options.resize = 64; }),
            message("no --raw and no --resize, not with no --raw and --resize 64"));
  EXPECT_EQ(refusal_of([](Source& source) {
              source.pack.samples.shape = {3, 8, 8};
            }),
            message("images of another shape, not with this one"));
  EXPECT_EQ(refusal_of([](Source& source) {
              source.pack.samples.class_names.emplace_back("owl");
              source.pack.samples.num_classes = 3;
            }),
            message("2 classes, not with 3 classes"));
  EXPECT_EQ(refusal_of([](Source& source) { source.pack.samples.class_names[1] = "owl"; }), message("class dog, not with owl"));
  EXPECT_EQ(refusal_of([](Source& source) {
              source.labels.push_back(0);
              source.names.emplace_back("e.jpg");
              source.pack.num_samples = 4;
            }),
            message("3 samples, not with 4 samples"));
  EXPECT_EQ(refusal_of([](Source& source) { source.names[1] = "bb.jpg"; }), message("another sample 1, not with sample 1, bb.jpg"));
  EXPECT_EQ(refusal_of([](Source& source) { source.labels[2] = 0; }), message("another label of sample 2, c d.jpg, not with 0"));
}

TEST_F(LmdbTest, DamageOfSamplesIsFound) {
  const std::string pixels(3 * 8 * 8, 'p');
  pack({}, {file_entry_of("one"), pixels_entry(input::ImageView::whole(as_bytes(pixels).data(), 3, 8, 8)), file_entry_of("three")});
  replace("ppppp", "qpppp");
  replace("three", "treee");
  const auto dataset = open();
  input::Scratch scratch;
  EXPECT_NO_THROW(dataset->check(0));
  EXPECT_NO_THROW(dataset->read(1, scratch)) << "training does not compare the checksums of pixels";
  const auto wrong = ThrowsMessage<std::runtime_error>("it is damaged: its checksum is wrong");
  EXPECT_THAT([&] { dataset->check(1); }, wrong);
  EXPECT_THAT([&] { dataset->check(2); }, wrong);
  EXPECT_THAT([&] { dataset->read(2, scratch); }, wrong);
}

TEST(LmdbFormat, MalformedEntriesAreRefused) {
  const std::string pixels(6, 'p');
  auto entry = pixels_entry(input::ImageView::whole(as_bytes(pixels).data(), 3, 1, 2));
  finish_entry(entry, 7);
  const auto refusal_of = [](const std::string& changed, int64_t index = 7) -> std::string {
    try {
      read_entry({as_bytes(changed), index, kPackVersion});
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal_of(entry), "");
  EXPECT_EQ(refusal_of(entry.substr(0, 15)), "it is damaged: its entry has only 15 bytes");
  EXPECT_EQ(refusal_of(entry + "p"), "it is damaged: its size is not that of its pixels");
  auto wide = entry;
  wide[15] = '\x7f';
  EXPECT_EQ(refusal_of(wide), "it is damaged: its size is not that of its pixels");
  auto unknown = entry;
  unknown[4] = '\7';
  EXPECT_EQ(refusal_of(unknown), "it is damaged: its entry is of no known kind");
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
  EXPECT_EQ(missing(), "there is no " + data_file() + "; set dataset.root to a folder that `trainer data pack` has written");
  pack_files();
  const auto made = factory();
  EXPECT_EQ(failure_of(made, Split::kValidation),
            "dataset.root: there is no " + data_file("val") + "; set dataset.root to a folder that `trainer data pack` has written");
  write_bytes(root() / "unfinished", "");
  EXPECT_EQ(missing(), root().string() +
                           " is not complete; run `trainer data pack` again as before, which continues (it removes unfinished at the end)");
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
    LmdbWriter writer(root() / "train");
    const std::vector<std::pair<std::string, std::string>> entries = {{"key", "value"}};
    writer.append(entries);
  }
  EXPECT_EQ(missing(), data_file() + " cannot be used: it is not a data set of `trainer data pack`" + kPackAgain);
}

TEST_F(LmdbTest, ATruncatedFileIsRefused) {
  pack({}, {file_entry_of("one"), file_entry_of("two"), file_entry_of(std::string(50000, '3'))});
  const auto num_bytes = std::filesystem::file_size(data_file());
  std::filesystem::resize_file(data_file(), num_bytes - 1);
  EXPECT_EQ(missing(),
            data_file() + " has only " + std::to_string(num_bytes - 1) + " of " + std::to_string(num_bytes) + " bytes" + kPackAgain);
}

TEST_F(LmdbTest, OtherVersionsAndDamageOfTheDescriptionAreRefused) {
  pack_files();
  replace("\"version\": 2", "\"version\": 3");
  EXPECT_EQ(missing(),
            data_file() + " cannot be used: it has version 3 of the format, but this program reads versions up to 2" + kPackAgain);
  replace("\"version\": 3", "\"version\": 1");
  EXPECT_EQ(missing(), data_file() + " has 4 of 3 samples" + kPackAgain);
  replace("\"version\": 1", "\"version\": 2");
  replace("trainer packed", "another packed");
  EXPECT_EQ(missing(), data_file() + " cannot be used: it is not a data set of `trainer data pack`" + kPackAgain);
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
    const auto info = to_json(Source().pack);
    entries.insert(entries.begin(),
                   {{"#checksums", checksums_entry(info, labels, "")}, {"#info", info}, {"#labels", labels}, {"#names", ""}});
    LmdbWriter(root() / "train").append(entries);
  };
  write(std::string(3 * 8, '\0'));
  const auto dataset = open();
  input::Scratch scratch;
  EXPECT_NO_THROW(dataset->read(1, scratch));
  EXPECT_THAT([&] { dataset->read(2, scratch); }, ThrowsMessage<std::runtime_error>("it is not in the data set"));
  dataset->prefetch(2);
  EXPECT_EQ(dataset->describe(2), "sample 2");
  write(std::string(3 * 8 - 1, '\0'));
  EXPECT_EQ(missing(), data_file() + " cannot be used: its entry #labels is damaged" + kPackAgain);
}

TEST_F(LmdbTest, DataSetsOfTheFirstVersionAreReadWithAWarning) {
  const Source source;
  auto json = to_json(source.pack);
  json.replace(json.find("\"version\": 2"), 12, "\"version\": 1");
  std::string labels;
  for (const int64_t label : source.labels) little_endian::append(labels, static_cast<uint64_t>(label));
  using Entries = std::vector<std::pair<std::string, std::string>>;
  LmdbWriter(root() / "train")
      .append(Entries{{"#info", json},
                      {"#labels", labels},
                      {"#names", std::string("a.jpg\0b.jpg\0c d.jpg", 20)},
                      {"00000000", version_1_entry_of("one")},
                      {"00000001", version_1_entry_of("two")},
                      {"00000002", version_1_entry_of("three")}});
  ::testing::internal::CaptureStderr();
  const auto dataset = factory().open(Split::kTrain, *make_console_logger());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr((root() / "train").string() + ": its labels and names have no checksums, because an earlier version"));
  input::Scratch scratch;
  const auto sample = dataset->read(2, scratch);
  EXPECT_EQ(as_text(sample.encoded), "three");
  EXPECT_EQ(sample.label, 1);
  EXPECT_EQ(dataset->name(2), "c d.jpg");
  EXPECT_NO_THROW(dataset->check(2));
  EXPECT_THAT([&] { PackWriter(root() / "train", source.pack, source); },
              ThrowsMessage<UsageError>((root() / "train").string() +
                                        " was begun with version 1 of the format, not with version 2; continue as it was begun, or remove "
                                        "that folder"));
}

// A file with pages of every kind.
class LmdbDamageTest : public LmdbTest {
 protected:
  static constexpr size_t kPageBytes = 4096;
  static constexpr int64_t kNumSamples = 240;

  LmdbDamageTest() {
    source_.pack.num_samples = kNumSamples;
    source_.labels.clear();
    source_.names.clear();
    for (int64_t i = 0; i < kNumSamples; ++i) {
      source_.labels.push_back(i % 2);
      source_.names.push_back(std::to_string(i));
      contents_.emplace_back(i % 40 == 0 ? 6000 : 30, static_cast<char>(i));
    }
    PackWriter writer(root() / "train", source_.pack, source_);
    for (int64_t i = 0; i < kNumSamples; ++i) {
      writer.add(entry_of(i));
      // It frees pages of the tree.
      if (i % 60 == 0) writer.commit();
    }
    unfinished_ = read_file(data_file());
    writer.commit();
    whole_ = read_file(data_file());
  }

  // Files and pixels.
  std::string entry_of(int64_t index) const {
    const auto& content = contents_[static_cast<size_t>(index)];
    if (index % 3 == 0) return file_entry_of(content);
    return pixels_entry(input::ImageView::whole(as_bytes(content).data(), 3, 1, static_cast<int>(content.size() / 3)));
  }

  // Calls `check` with the file after each of the changes of each byte where a page begins, or its first or last entry.
  static void damage(const std::string& whole, size_t page, const std::vector<int>& changes, const std::function<void(size_t)>& check,
                     std::string& damaged) {
    std::vector<size_t> offsets;
    const auto add = [&](size_t begin, size_t count) {
      for (size_t i = begin; i < std::min(begin + count, kPageBytes); ++i) offsets.push_back(page * kPageBytes + i);
    };
    add(0, page < 2 ? 152 : 20);
    const auto* bytes = as_bytes(whole).data() + page * kPageBytes;
    if (const bool is_of_a_tree = page >= 2 && (bytes[10] == 1 || bytes[10] == 2); is_of_a_tree) {
      const size_t num_nodes = (little_endian::load<uint16_t>(bytes + 12) - 16U) / 2;
      for (const size_t node : {size_t{0}, num_nodes - 1}) add(little_endian::load<uint16_t>(bytes + 16 + 2 * node), 24);
    }
    for (const auto offset : offsets) {
      for (const int change : changes) {
        damaged = whole;
        damaged[offset] = static_cast<char>(damaged[offset] ^ change);
        check(offset);
      }
    }
  }

  // As a new file: a file system may flush one that is written anew.
  void put(const std::string& content) const {
    std::filesystem::remove(data_file());
    write_bytes(data_file(), content);
  }

  // Returns 0 if a process ends that calls it, otherwise how it ended.
  static int status_of_process(const std::function<void()>& work) {
    const auto child = fork();
    if (child == 0) {
      work();
      _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
  }

  Source source_;
  std::vector<std::string> contents_;
  std::string unfinished_, whole_;
};

TEST_F(LmdbDamageTest, EachDamagedPageIsASentenceOrTheRightSamples) {
  int num_refused = 0, num_unreadable = 0, num_right = 0;
  const auto check = [&](size_t offset) {
    std::unique_ptr<input::Dataset> dataset;
    try {
      dataset = open_packed(root(), Split::kTrain);
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr(data_file())) << offset;
      ++num_refused;
      return;
    }
    input::Scratch scratch;
    for (int64_t i = 0; i < kNumSamples; ++i) {
      try {
        const auto sample = dataset->read(i, scratch);
        const auto& content = contents_[static_cast<size_t>(i)];
        const std::span<const uint8_t> found = i % 3 == 0 ? sample.encoded : std::span(sample.image.pixels, content.size());
        // In training the checksums of pixels are not compared.
        if (as_text(found) != content) dataset->check(i);
        ASSERT_EQ(as_text(found), content) << "sample " << i << " after a change at " << offset;
        ASSERT_EQ(sample.label, i % 2);
        ++num_right;
      } catch (const std::runtime_error& reason) {
        ASSERT_NE(std::string(reason.what()), "");
        ++num_unreadable;
      }
    }
  };
  std::string damaged;
  for (size_t page = 0; page < whole_.size() / kPageBytes; ++page) {
    damage(
        whole_, page, {0xFF, 0x01, 0x80},
        [&](size_t offset) {
          put(damaged);
          check(offset);
        },
        damaged);
    for (const char filling : {'\0', '\xff'}) {
      damaged = whole_;
      std::fill_n(damaged.begin() + static_cast<std::ptrdiff_t>(page * kPageBytes), kPageBytes, filling);
      put(damaged);
      check(page * kPageBytes);
    }
  }
  EXPECT_GT(num_refused, 100);
  EXPECT_GT(num_unreadable, 100);
  EXPECT_GT(num_right, 100);
}

// LMDB's library writes, and would end the process.
TEST_F(LmdbDamageTest, ADamagedFileIsNotContinued) {
  for (size_t page = 0; page < unfinished_.size() / kPageBytes; ++page) {
    int num_accepted = 0;
    const auto pack_on = [&] {
      try {
        PackWriter writer(root() / "train", source_.pack, source_);
        // A commit waits for the disk.
        if (num_accepted++ % 16 != 0) return;
        writer.add(entry_of(kNumSamples - 1));
        writer.commit();
      } catch (const std::runtime_error&) {
      }
    };
    std::string damaged;
    const auto work = [&] {
      damage(
          unfinished_, page, {0xFF, 0x01},
          [&](size_t) {
            put(damaged);
            pack_on();
          },
          damaged);
    };
    EXPECT_EQ(status_of_process(work), 0) << "page " << page;
  }
}

TEST_F(LmdbDamageTest, WhyADamagedFileIsNotContinued) {
  const auto folder = (root() / "train").string();
  unfinished_[kPageBytes + 16] ^= 1;
  put(unfinished_);
  EXPECT_THAT([&] { PackWriter(folder, source_.pack, source_); },
              ThrowsMessage<DataError>("the beginning of data.mdb is damaged; remove " + folder + " and pack again"));
  put("not of LMDB");
  EXPECT_THAT([&] { PackWriter(folder, source_.pack, source_); },
              ThrowsMessage<DataError>("cannot read " + data_file() + ": it is not an LMDB file, or its beginning is damaged; remove " +
                                       folder + " and pack again"));
}

TEST_F(LmdbDamageTest, ADamagedLeafMakesOnlyItsOwnSamplesUnreadable) {
  size_t page = 2;
  const auto is_leaf_of = [&](const std::string& key) {
    return whole_[page * kPageBytes + 10] == 2 && whole_.substr(page * kPageBytes, kPageBytes).find(key) != std::string::npos;
  };
  while (!is_leaf_of(sample_key(100, kNumSamples))) ++page;
  // Its number.
  whole_[page * kPageBytes] = static_cast<char>(whole_[page * kPageBytes] ^ 1);
  put(whole_);
  const auto dataset = open();
  input::Scratch scratch;
  int num_unreadable = 0;
  for (int64_t i = 0; i < kNumSamples; ++i) {
    try {
      dataset->read(i, scratch);
    } catch (const std::runtime_error& reason) {
      EXPECT_EQ(std::string(reason.what()), "page " + std::to_string(page) + " of data.mdb is damaged");
      ++num_unreadable;
    }
  }
  EXPECT_GT(num_unreadable, 5);
  EXPECT_LT(num_unreadable, 70);
}

TEST_F(LmdbTest, SplitsOfDifferentDataSetsAreRefused) {
  pack_files();
  Source other;
  other.pack.samples.class_names[0] = "owl";
  pack(other, {file_entry_of("one"), file_entry_of("two"), file_entry_of("three")}, "val");
  const auto made = factory();
  EXPECT_TRUE(made.has_validation);
  EXPECT_EQ(failure_of(made, Split::kValidation),
            "dataset.root: " + root().string() +
                " has other classes, or images of another shape, than train had when the program started; start it again, or pack the data "
                "set again");
}

TEST_F(LmdbTest, WhatWasWrittenBeforeAFullDiskStays) {
  const Source source;
  {
    PackWriter writer(root() / "train", source.pack, source);
    writer.add(file_entry_of("one"));
    writer.commit();
    const trainer::testing::FileSizeLimit limit(1 << 20);
    writer.add(file_entry_of(std::string(2 << 20, '2')));
    EXPECT_THAT([&] { writer.commit(); },
                ThrowsMessage<Error>("cannot write " + data_file() +
                                     ": Input/output error (the disk may be full); once this is remedied, the same command continues"));
  }
  EXPECT_EQ(PackWriter(root() / "train", source.pack, source).num_written(), 1);
}

}  // namespace
}  // namespace trainer::datasets::test
