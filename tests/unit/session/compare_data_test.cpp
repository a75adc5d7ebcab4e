#include <gtest/gtest.h>

#include <mutex>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "run/samples/shared_samples.h"
#include "tests/testing/ranks.h"
#include "trainer/error.h"

namespace trainer::samples {
namespace {

struct Image {
  std::string name;
  int64_t label = 0;
  int64_t num_bytes = 0;
};

// The data of one rank.
struct Copy {
  std::vector<std::string> classes = {"cat", "dog"};
  std::vector<int64_t> shape = {3, 8, 8};
  std::vector<Image> images = {};
  bool reads = true;
  bool is_image = true;
  std::vector<int64_t> order = {0, 1, 2};
};

class ListedImages : public data::Dataset {
 public:
  explicit ListedImages(const Copy& copy)
      : info_{.shape = copy.shape, .is_image = copy.is_image, .num_classes = 2, .class_names = copy.classes}, images_(copy.images) {}
  const data::DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return static_cast<int64_t>(images_.size()); }
  data::Sample read(int64_t index, data::Scratch&) const override {
    return {.target = {.label = images_[static_cast<size_t>(index)].label}};
  }
  data::SampleOrigin origin(int64_t index) const override {
    const auto& name = images_[static_cast<size_t>(index)].name;
    return {.name = name, .key = name};
  }
  std::optional<int64_t> num_bytes(int64_t index) const override { return images_[static_cast<size_t>(index)].num_bytes; }

 private:
  data::DatasetInfo info_;
  std::vector<Image> images_;
};

Copy complete() {
  Copy copy;
  for (int64_t i = 0; i < 40; ++i) copy.images.push_back({std::to_string(i) + ".jpg", i / 20, 100 + i});
  return copy;
}

// Returns the message of rank 0; empty if no rank throws. An evaluation opens only one split.
std::string compare(const std::vector<Copy>& copies, bool is_evaluation = false) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::mutex mutex;
  std::string message;
  int num_refused = 0;
  testing::run_ranks(static_cast<int>(copies.size()), [&](distributed::ProcessGroups& groups) {
    const auto rank = static_cast<size_t>(groups.world()->rank());
    distributed::StartupBarrier barrier(store, static_cast<int>(rank), static_cast<int>(copies.size()), std::chrono::minutes(1));
    engine::Ranks ranks{.world = groups.world()};
    for (size_t i = 0; i < copies.size(); ++i) ranks.infos.push_back({.host = "host-" + std::to_string(i)});
    if (!copies[rank].reads) ranks.reading = groups.world();  // in which only rank 0 reads
    const engine::Samples samples(std::make_shared<ListedImages>(copies[rank]));
    auto train = complete();
    train.is_image = copies[rank].is_image;
    const engine::TrainingSamples evaluated{{.train = samples}, std::nullopt};
    const engine::TrainingSamples both{
        {.train = engine::Samples(std::make_shared<ListedImages>(train)), .validation = samples},
        data::ShardedSampler({3, [order = copies[rank].order](int64_t) { return order; }}, data::ShardOptions{}),
        3};
    const bool reads = ranks.reads_data();
    try {
      require_same_data(barrier, ranks, !reads ? nullptr : is_evaluation ? &evaluated : &both);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      EXPECT_EQ(error.exit_code(), ExitCode::kData);
      if (rank == 0) message = error.what();
      ++num_refused;
    }
  });
  EXPECT_EQ(num_refused, message.empty() ? 0 : static_cast<int>(copies.size()));
  return message;
}

constexpr const char* kRemedy = "; give all ranks the same data, and do not change it during the start";

TEST(CompareData, EqualCopiesPass) { EXPECT_EQ(compare({complete(), complete(), complete()}), ""); }

TEST(CompareData, TheFirstDifferenceIsNamed) {
  auto fewer = complete();
  fewer.images.erase(fewer.images.begin() + 7);
  EXPECT_EQ(
      compare({complete(), complete(), fewer}),
      std::string("rank 2 on host-2 has 39 validation images, but rank 0 has 40; the first difference: image 7 is 8.jpg of class 0 with "
                  "108 bytes, not 7.jpg of class 0 with 107 bytes") +
          kRemedy);
  auto shorter = complete();
  shorter.images.pop_back();
  EXPECT_EQ(
      compare({complete(), shorter}),
      std::string("rank 1 on host-1 has 39 validation images, but rank 0 has 40; the first difference: only rank 0 has image 39, 39.jpg of "
                  "class 1 with 139 bytes") +
          kRemedy);
  EXPECT_EQ(compare({shorter, complete()}).substr(0, 104),
            "rank 1 on host-1 has 40 validation images, but rank 0 has 39; the first difference: only rank 1 has imag");
  const auto other_than = [](const std::string& example) {
    return "rank 1 on host-1 has other validation images than rank 0: " + example + kRemedy;
  };
  auto cut = complete();
  cut.images[39].num_bytes = 5;
  EXPECT_EQ(compare({complete(), cut}), other_than("image 39 is 39.jpg of class 1 with 5 bytes, not 39.jpg of class 1 with 139 bytes"));
  auto relabelled = complete();
  relabelled.images[0].label = 1;
  EXPECT_EQ(compare({complete(), relabelled}),
            other_than("image 0 is 0.jpg of class 1 with 100 bytes, not 0.jpg of class 0 with 100 bytes"));
  auto renamed = complete();
  renamed.classes = {"ape", "cat"};
  EXPECT_EQ(compare({complete(), renamed}), other_than("class 0 is ape, not cat"));
  auto grey = complete();
  grey.shape = {1, 8, 8};
  EXPECT_EQ(compare({complete(), grey}), other_than("the shape is [1, 8, 8], not [3, 8, 8]"));
}

TEST(CompareData, TheOrderOfASamplerCounts) {
  auto other = complete();
  other.order = {0, 2, 1};
  EXPECT_EQ(
      compare({complete(), other}),
      std::string("rank 1 on host-1 has another order of the training images than rank 0: draw 1 of rank 0 in the first epoch is image "
                  "2, not image 1") +
          kRemedy);
}

TEST(CompareData, WhatIsEvaluatedHasNoPartOfATraining) {
  auto shorter = complete();
  shorter.images.pop_back();
  EXPECT_EQ(
      compare({complete(), shorter}, /*is_evaluation=*/true),
      std::string("rank 1 on host-1 has 39 images, but rank 0 has 40; the first difference: only rank 0 has image 39, 39.jpg of class 1 "
                  "with 139 bytes") +
          kRemedy);
  auto renamed = complete();
  renamed.classes = {"ape", "cat"};
  EXPECT_EQ(compare({complete(), renamed}, /*is_evaluation=*/true),
            std::string("rank 1 on host-1 has other images than rank 0: class 0 is ape, not cat") + kRemedy);
}

TEST(CompareData, WhatIsNoImageIsASample) {
  auto samples = complete();
  samples.is_image = false;
  auto shorter = samples;
  shorter.images.pop_back();
  EXPECT_EQ(compare({samples, shorter}),
            std::string("rank 1 on host-1 has 39 validation samples, but rank 0 has 40; the first difference: only rank 0 has sample 39, "
                        "39.jpg of class 1 with 139 bytes") +
                kRemedy);
  auto other = samples;
  other.order = {0, 2, 1};
  EXPECT_EQ(compare({samples, other}),
            std::string("rank 1 on host-1 has another order of the training samples than rank 0: draw 1 of rank 0 in the first epoch is "
                        "sample 2, not sample 1") +
                kRemedy);
}

TEST(CompareData, RanksThatDoNotReadAreNotCompared) {
  Copy none;
  none.reads = false;
  EXPECT_EQ(compare({complete(), none}), "");
}

}  // namespace
}  // namespace trainer::samples
