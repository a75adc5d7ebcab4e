#pragma once
// A folder into which tests pack samples.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "datasets/lmdb.h"
#include "datasets/lmdb_file.h"
#include "tests/testing/temporary_folder.h"
#include "tests/unit/datasets/failure_of.h"
#include "tests/unit/datasets/small_files.h"

namespace trainer::datasets::test {

// Labels and names; the samples' entries are made by the tests.
class PackSource : public data::Dataset {
 public:
  const data::DatasetInfo& info() const override { return pack.samples; }
  int64_t size() const override { return static_cast<int64_t>(labels.size()); }
  data::Sample read(int64_t, data::Scratch&) const override { throw std::logic_error("packing reads no samples for their labels"); }
  data::Target target(int64_t index, data::Scratch&) const override { return {.label = labels[static_cast<size_t>(index)]}; }
  data::SampleOrigin origin(int64_t index) const override { return {.name = names[static_cast<size_t>(index)]}; }

  std::vector<int64_t> labels = {1, 0, 1};
  std::vector<std::string> names = {"a.jpg", "b.jpg", "c d.jpg"};
  PackInfo pack{.source = "image_folder",
                .num_samples = 3,
                .samples = {.shape = {3, data::kAnySize, data::kAnySize}, .num_classes = 2, .class_names = {"cat", "dog"}},
                .transforms = {.train = "[random_horizontal_flip]", .validation = "[]"},
                .options = {}};
};

inline std::span<const uint8_t> as_bytes(const std::string& text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }
inline std::string as_text(std::span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }
inline std::string file_entry_of(const std::string& content) { return file_entry(as_bytes(content)); }
class LmdbTest : public ::testing::Test {
 protected:
  std::filesystem::path root() const { return folder_.path() / "packed"; }
  std::string data_file(const char* split = "train") const { return (root() / split / "data.mdb").string(); }

  void pack(const PackSource& source, const std::vector<std::string>& entries, const char* split = "train") const {
    PackWriter writer(root() / split, source.pack, source);
    for (const auto& entry : entries) writer.add(entry);
    writer.commit();
  }
  void pack_files(const char* split = "train") const {
    pack({}, {file_entry_of("one"), file_entry_of("two"), file_entry_of("three")}, split);
  }
  data::DatasetFactory factory() const {
    LmdbOptions options;
    options.root = root().string();
    return lmdb_factory(options);
  }
  std::unique_ptr<data::Dataset> open(data::Split split = data::Split::kTrain) const { return factory().open(split, *make_quiet_logger()); }
  // The reason why the data set cannot be used.
  std::string missing() const {
    const auto made = factory();
    EXPECT_EQ(made.info.num_classes, data::kUnknownClasses);
    EXPECT_EQ(failure_of(made, data::Split::kTrain), "dataset.root: " + made.missing);
    return made.missing;
  }
  // Replaces each `before` in the file by `after`, which must be as long, also in pages that LMDB no longer uses.
  void replace(const std::string& before, const std::string& after) const {
    auto content = read_file(data_file());
    ASSERT_NE(content.find(before), content.npos);
    for (size_t at = 0; (at = content.find(before, at)) != content.npos; at += after.size()) content.replace(at, after.size(), after);
    write_bytes(data_file(), content);
  }

 private:
  trainer::testing::TemporaryFolder folder_;
};

}  // namespace trainer::datasets::test
