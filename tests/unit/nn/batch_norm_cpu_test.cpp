#include "nn/batch_norm_cpu.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace trainer::nn::test {
namespace {

// Enough values for several chunks and blocks; the last ones are not full.
const std::vector<std::vector<int64_t>> kShapes{{37, 5, 31, 33},  {70, 70, 7, 5}, {300, 133, 1, 2}, {9000, 13, 1, 1},
                                                {3, 1, 201, 199}, {2, 3, 4, 4},   {1, 7, 1, 1},     {1000, 129}};

struct Values {
  torch::Tensor x, dy, mean, scale, shift;
};

Values make_values(const std::vector<int64_t>& shape, torch::MemoryFormat format, torch::Dtype dtype) {
  auto generator = at::detail::createCPUGenerator(1);
  const auto make = [&] {
    const torch::Tensor values = at::randn(shape, generator, torch::kFloat64).mul_(2).add_(1).to(dtype);
    return shape.size() == 4 ? values.contiguous(format) : values;
  };
  const auto of_channels = [&] { return at::randn({shape[1]}, generator, torch::kFloat64); };
  return {make(), make(), of_channels(), of_channels(), of_channels()};
}

torch::Tensor by_channel(const torch::Tensor& x) { return x.to(torch::kFloat64).transpose(0, 1).flatten(1); }

torch::Tensor broadcast(const torch::Tensor& of_channels, const torch::Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = -1;
  return of_channels.view(shape);
}

void expect_near(const torch::Tensor& actual, const torch::Tensor& expected, double tolerance) {
  ASSERT_EQ(actual.sizes(), expected.sizes());
  EXPECT_LE((actual.to(torch::kFloat64) - expected).abs().max().item<double>(), tolerance * expected.abs().max().item<double>());
}

class ThreadCount {
 public:
  explicit ThreadCount(int num_threads) : before_(at::get_num_threads()) { at::set_num_threads(num_threads); }
  ~ThreadCount() { at::set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

class ChannelLoops : public ::testing::TestWithParam<std::tuple<torch::MemoryFormat, torch::Dtype>> {
 protected:
  torch::Dtype dtype() const { return std::get<torch::Dtype>(GetParam()); }
  Values make(const std::vector<int64_t>& shape) const { return make_values(shape, std::get<torch::MemoryFormat>(GetParam()), dtype()); }
  // For values with a few roundings: half a unit in the last place of the type, and a little more if computed in float32.
  double value_tolerance() const {
    if (dtype() == torch::kFloat64) return 1e-15;
    if (dtype() == torch::kFloat32) return 3e-7;
    return dtype() == torch::kHalf ? 1.0 / 2048 + 1e-6 : 1.0 / 256 + 1e-6;
  }

 private:
  // The reference runs many small operators, whose threads would wait for each other longer than they work.
  const ThreadCount one_thread_{1};
};

TEST_P(ChannelLoops, MomentsAndSums) {
  for (const auto& shape : kShapes) {
    const Values values = make(shape);
    const torch::Tensor x = by_channel(values.x);
    const torch::Tensor mean = x.mean(1);
    const torch::Tensor moments = at::cat({mean, (x - mean.unsqueeze(1)).square().sum(1), torch::tensor({x.size(1)}, torch::kFloat64)});
    expect_near(channel_moments(values.x), moments, 1e-14);

    const torch::Tensor dy = by_channel(values.dy);
    const torch::Tensor sums = at::cat({dy.sum(1), (dy * (x - values.mean.unsqueeze(1))).sum(1)});
    expect_near(channel_gradient_sums(values.dy, values.x, values.mean), sums, 1e-13);
  }
}

TEST_P(ChannelLoops, ValuesKeepTypeAndLayout) {
  for (const auto& shape : kShapes) {
    const Values values = make(shape);
    const auto [x, dy, mean, scale, shift] = values;
    const torch::Tensor centered = x.to(torch::kFloat64) - broadcast(mean, x);
    const torch::Tensor y = scale_channels(x, mean, scale, shift);
    expect_near(y, centered * broadcast(scale, x) + broadcast(shift, x), value_tolerance());
    EXPECT_EQ(y.scalar_type(), dtype());
    EXPECT_EQ(y.strides(), x.strides());

    const torch::Tensor dx = combine_channels(dy, mean, x, mean, scale, shift);
    expect_near(dx, dy.to(torch::kFloat64) * broadcast(mean, x) + centered * broadcast(scale, x) + broadcast(shift, x), value_tolerance());
    EXPECT_EQ(dx.scalar_type(), dtype());
    EXPECT_EQ(dx.strides(), x.strides());
  }
}

INSTANTIATE_TEST_SUITE_P(FormatsAndTypes, ChannelLoops,
                         ::testing::Combine(::testing::Values(torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast),
                                            ::testing::Values(torch::kFloat64, torch::kFloat32, torch::kBFloat16, torch::kHalf)));

TEST(ChannelLoops, AnyNumberOfThreadsGivesTheSameBits) {
  for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
    const auto [x, dy, mean, scale, shift] = make_values({37, 5, 31, 33}, format, torch::kFloat32);
    std::vector<torch::Tensor> results;
    for (const int threads : {1, 3}) {
      const ThreadCount thread_count(threads);
      results.push_back(at::cat({channel_moments(x), channel_gradient_sums(dy, x, mean), scale_channels(x, mean, scale, shift).flatten(),
                                 combine_channels(dy, mean, x, mean, scale, shift).flatten()}));
    }
    EXPECT_TRUE(results[0].equal(results[1]));
  }
}

TEST(ChannelLoops, EmptyTensors) {
  for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
    const auto [x, dy, mean, scale, shift] = make_values({0, 3, 4, 4}, format, torch::kFloat32);
    EXPECT_TRUE(channel_moments(x).equal(torch::zeros({7}, torch::kFloat64)));
    EXPECT_TRUE(channel_gradient_sums(dy, x, mean).equal(torch::zeros({6}, torch::kFloat64)));
    EXPECT_EQ(scale_channels(x, mean, scale, shift).sizes(), x.sizes());
    EXPECT_EQ(combine_channels(dy, scale, x, mean, scale, shift).sizes(), x.sizes());
  }
}

TEST(ChannelLoops, MergingSkipsEmptyPartsAndKeepsASinglePart) {
  const auto [x, dy, mean, scale, shift] = make_values({6, 3, 4, 4}, torch::MemoryFormat::Contiguous, torch::kFloat64);
  const torch::Tensor whole = channel_moments(x);
  const torch::Tensor empty = torch::full({7}, 5.0, torch::kFloat64).index_fill_(0, torch::tensor({6}), 0.0);
  EXPECT_TRUE(merge_channel_moments(at::stack({empty, whole, empty})).equal(whole));
  const torch::Tensor parts = at::stack({channel_moments(x.narrow(0, 0, 1)), empty, channel_moments(x.narrow(0, 1, 5))});
  expect_near(merge_channel_moments(parts), whole, 1e-15);
  EXPECT_TRUE(merge_channel_moments(at::stack({empty})).equal(torch::zeros({7}, torch::kFloat64)));
}

TEST(ChannelLoops, RefusesOtherStrides) {
  const torch::Tensor x = torch::ones({2, 3, 4, 5}).transpose(2, 3);
  EXPECT_THROW(channel_moments(x), c10::Error);
}

}  // namespace
}  // namespace trainer::nn::test
