#include "distributed/packed_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace trainer::distributed::test {
namespace {

using Tensors = std::vector<torch::Tensor>;

// Tensors of different types, sizes and memory orders, and one whose memory has gaps.
Tensors make_tensors() {
  return {torch::tensor(true),
          torch::randn({3, 5}, torch::kFloat64),
          torch::tensor(int64_t{7}),
          torch::empty({0}),
          torch::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast),
          torch::randn({4, 6}).t(),
          torch::randn({4, 6}).narrow(1, 1, 3),
          torch::randn({5}).to(torch::kBFloat16),
          torch::tensor(3.5F)};
}

Tensors copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

bool are_equal(const Tensors& tensors, const Tensors& others) {
  return std::ranges::equal(tensors, others, [](const auto& tensor, const auto& other) { return torch::equal(tensor, other); });
}

void set_to_ones(const Tensors& tensors) {
  for (const auto& tensor : tensors) torch::Tensor(tensor).fill_(1);
}

TEST(PackedTensors, GetBackTheValuesThatWereRead) {
  const auto tensors = make_tensors();
  const auto before = copies_of(tensors);
  const PackedTensors packed(tensors);
  const auto bytes = packed.read();
  set_to_ones(tensors);
  packed.write(bytes);
  EXPECT_TRUE(are_equal(tensors, before));
}

TEST(PackedTensors, AreWrittenOnACondition) {
  const auto tensors = make_tensors();
  const PackedTensors packed(tensors);
  const auto bytes = packed.read();
  const auto before = copies_of(tensors);
  set_to_ones(tensors);
  const auto ones = copies_of(tensors);
  packed.write_if(torch::tensor(false), bytes);
  EXPECT_TRUE(are_equal(tensors, ones));
  packed.write_if(torch::tensor(true), bytes);
  EXPECT_TRUE(are_equal(tensors, before));
}

TEST(PackedTensors, MayBeNone) {
  const PackedTensors packed({});
  packed.write(packed.read());
  packed.write_if(torch::tensor(true), packed.read());
  EXPECT_TRUE(packed.empty());
}

TEST(PackedTensors, AreOnOneDevice) {
  EXPECT_THAT(
      [] {
        PackedTensors({torch::ones({1}), torch::ones({1}, torch::kMeta)});
      },
      ::testing::ThrowsMessage<UsageError>("the buffers of the model are on several devices; move the model to one device"));
}

}  // namespace
}  // namespace trainer::distributed::test
