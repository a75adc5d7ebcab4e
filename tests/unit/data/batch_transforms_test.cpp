#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "data/batch_transforms/batch_mixer.h"
#include "tests/testing/golden_image.h"
#include "tests/testing/read_component.h"
#include "tests/unit/data/expect_counts.h"
#include "trainer/torch.h"

namespace trainer::data {
namespace {

using trainer::testing::fnv1a_text;
using trainer::testing::split;

constexpr int64_t kNumClasses = 4;

BatchMixer mixer_of(const std::string& yaml, int64_t num_classes = kNumClasses, uint64_t seed = 1) {
  return {trainer::testing::read_components(batch_transform_registry(), "[" + yaml + "]"), num_classes, seed};
}

// The batch of tests/golden/make_batch_transforms.py, or one of another size.
torch::Tensor some_images(torch::ScalarType dtype, int64_t size = 5) {
  return torch::arange(size * 3 * 7 * 6).mul(37).remainder(256).to(dtype).div(255).view({size, 3, 7, 6});
}
torch::Tensor some_labels(int64_t size = 5) { return torch::arange(size).mul(3).remainder(kNumClasses); }

std::string checksum(const torch::Tensor& tensor) {
  EXPECT_TRUE(tensor.is_contiguous());
  const auto* bytes = static_cast<const uint8_t*>(tensor.const_data_ptr());
  return fnv1a_text({bytes, bytes + tensor.nbytes()});
}

TEST(BatchTransforms, EqualThoseOfTorchvisionBitForBit) {
  std::ifstream file(TRAINER_SOURCE_DIR "/tests/golden/batch_transforms.txt");
  int num_lines = 0;
  std::string names;
  for (std::string line; std::getline(file, line); ++num_lines) {
    const auto parts = split(line, '\t');
    const auto dtype = parts.at(1) == "float64" ? torch::kFloat64 : torch::kFloat32;
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(std::stoull(parts.at(2)));
    const auto mixed = mixer_of(parts[0]).apply(some_images(dtype), some_labels(), generator);
    EXPECT_EQ(checksum(mixed.images), parts.at(3)) << line;
    EXPECT_EQ(checksum(mixed.targets), parts.at(4)) << line;
    names += parts[0] + " ";
  }
  EXPECT_EQ(num_lines, 72);
  for (const auto& name : batch_transform_registry().names()) EXPECT_NE(names.find(name), std::string::npos) << name;
}

// Each batch is mixed for a different pair of step and stream.
TEST(BatchTransforms, HaveTheDistributionOfTorchvision) {
  constexpr int kNumSamples = 2000;
  constexpr int kNumStreams = 4;
  const auto images = torch::tensor({0.0F, 1.0F}).view({2, 1, 1, 1}).expand({2, 1, 5, 6}).contiguous();
  const auto labels = torch::tensor({0, 1}, torch::kInt64);
  std::ifstream file(TRAINER_SOURCE_DIR "/tests/golden/batch_distributions.txt");
  int num_lines = 0;
  for (std::string line; std::getline(file, line); ++num_lines) {
    const auto parts = split(line, '\t');
    const auto mixer = mixer_of(parts[0], 2);
    std::map<std::string, int> counts;
    for (int i = 0; i < kNumSamples; ++i) {
      const auto mixed = mixer.apply(images, labels, i / kNumStreams, i % kNumStreams);
      const auto* values = mixed.images.const_data_ptr<float>() + images[0].numel();
      std::string digits;
      for (int64_t k = 0; k < images[0].numel(); ++k) digits += static_cast<char>('0' + std::min(static_cast<int>(values[k] * 10), 9));
      ++counts[digits];
    }
    expect_counts(counts, kNumSamples, parts.at(1), parts[0]);
  }
  EXPECT_EQ(num_lines, 3);
}

TEST(BatchTransforms, KeepDtypeAndMemoryFormatForAnyNumberOfSamples) {
  for (const auto* yaml : {"mixup", "cutmix", "mixup, cutmix"}) {
    const auto mixer = mixer_of(yaml);
    for (const auto dtype : {torch::kBFloat16, torch::kHalf, torch::kFloat32, torch::kFloat64}) {
      for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
        for (const int64_t size : {0, 1, 2, 5}) {
          SCOPED_TRACE(fmt::format("{}, {} samples", yaml, size));
          const auto images = some_images(dtype, size).contiguous(format);
          const auto before = images.clone();
          for (int64_t step = 0; step < 4; ++step) {
            const auto mixed = mixer.apply(images, some_labels(size), step, 0);
            EXPECT_EQ(mixed.images.sizes(), images.sizes());
            EXPECT_EQ(mixed.images.scalar_type(), dtype);
            EXPECT_EQ(mixed.images.strides(), images.strides());
            EXPECT_FALSE(size > 0 && mixed.images.is_alias_of(images));
            EXPECT_EQ(mixed.targets.sizes(), (std::vector<int64_t>{size, kNumClasses}));
            EXPECT_EQ(mixed.targets.scalar_type(), dtype == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32);
            EXPECT_TRUE(torch::allclose(mixed.targets.sum(1), torch::ones({size}, mixed.targets.dtype())));
            // A single sample is mixed with itself.
            EXPECT_TRUE(size != 1 || torch::allclose(mixed.images, images, /*rtol=*/dtype == torch::kBFloat16 ? 0.02 : 0.002));
          }
          EXPECT_TRUE(torch::equal(images, before));
        }
      }
    }
  }
}

TEST(BatchTransforms, MixupTakesSamplesThatAreNoImages) {
  const auto mixer = mixer_of("mixup");
  const auto images = some_images(torch::kFloat32);
  const auto of_images = mixer.apply(images, some_labels(), 0, 0);
  const auto of_vectors = mixer.apply(images.flatten(1), some_labels(), 0, 0);
  EXPECT_TRUE(torch::equal(of_vectors.images, of_images.images.flatten(1)));
  EXPECT_TRUE(torch::equal(of_vectors.targets, of_images.targets));
}

TEST(BatchTransforms, RandomNumbersAreAFunctionOfSeedStepAndStream) {
  const auto images = some_images(torch::kFloat64);
  const auto targets = [&](uint64_t seed, int64_t step, int64_t stream) {
    return mixer_of("mixup", kNumClasses, seed).apply(images, some_labels(), step, stream).targets;
  };
  EXPECT_TRUE(torch::equal(targets(1, 2, 3), targets(1, 2, 3)));
  std::set<double> weights;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    for (int64_t step = 0; step < 3; ++step) {
      for (int64_t stream = 0; stream < 3; ++stream) weights.insert(targets(seed, step, stream)[1][3].item<double>());
    }
  }
  EXPECT_EQ(weights.size(), 27U);
}

TEST(BatchMixer, GivesUnmixedSamplesTheSameFormOfTargets) {
  const auto images = some_images(torch::kFloat32);
  const auto mixed = mixer_of("mixup").apply_nothing(images, some_labels());
  EXPECT_TRUE(at::equal(mixed.images, images));
  EXPECT_TRUE(at::equal(mixed.targets, at::one_hot(some_labels(), kNumClasses).to(torch::kFloat32)));
}

}  // namespace
}  // namespace trainer::data
