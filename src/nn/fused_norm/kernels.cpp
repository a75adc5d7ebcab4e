#include "nn/fused_norm/kernels.h"

#include <algorithm>

// Compiled once for each instruction set that Highway supports; the best one is selected at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/fused_norm/kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nn/channels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trainer::nn::fused_norm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using nn::HWY_NAMESPACE::for_each_vector;
using nn::HWY_NAMESPACE::load;
using nn::HWY_NAMESPACE::store;

// The number of rows that are added in T before their sum is added in float64; they stay in the first-level cache.
constexpr int64_t kRows = 32;

// Calls act(first row, number of rows) for blocks of rows.
template <class Act>
HWY_INLINE void for_each_block(int64_t num_rows, const Act& act) {
  for (int64_t row = 0; row < num_rows; row += kRows) act(row, std::min(kRows, num_rows - row));
}

template <class S>
void moments_of(const S* x, int64_t num_rows, int64_t num_channels, double* mean, double* squares) {
  using T = Computed<S>;
  std::fill_n(mean, num_channels, 0.0);
  std::fill_n(squares, num_channels, 0.0);
  for_each_block(num_rows, [&](int64_t row, int64_t count) {
    for_each_vector<Computed<S>>(num_channels, [&](auto tag, int64_t channel) {
      constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(decltype(tag)()));
      const S* first = x + row * num_channels + channel;
      auto sum = hn::Zero(tag);
      for (int64_t r = 0; r < count; ++r) sum = hn::Add(sum, load(tag, first + r * num_channels));
      const auto centre = hn::Mul(sum, hn::Set(tag, T(1) / static_cast<T>(count)));
      // `centre` is rounded, so the differences from it do not add up to 0; their sum `rest` corrects the mean and the squares.
      auto rest = hn::Zero(tag);
      auto square = hn::Zero(tag);
      for (int64_t r = 0; r < count; ++r) {
        const auto difference = hn::Sub(load(tag, first + r * num_channels), centre);
        rest = hn::Add(rest, difference);
        square = hn::MulAdd(difference, difference, square);
      }
      HWY_ALIGN T centres[kLanes];
      HWY_ALIGN T rests[kLanes];
      HWY_ALIGN T block_squares[kLanes];
      hn::Store(centre, tag, centres);
      hn::Store(rest, tag, rests);
      hn::Store(square, tag, block_squares);
      // Merges the moments of two parts (Chan, Golub and LeVeque 1979).
      const auto inverse = 1.0 / static_cast<double>(count);
      const auto share = static_cast<double>(count) / static_cast<double>(row + count);
      const auto weight = static_cast<double>(row) * share;
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const double rest_of_lane = rests[lane];
        const double delta = centres[lane] + rest_of_lane * inverse - mean[channel + lane];
        mean[channel + lane] += delta * share;
        squares[channel + lane] += block_squares[lane] - rest_of_lane * rest_of_lane * inverse + delta * delta * weight;
      }
    });
  });
}

// Max is not used, because it returns 0 for NaN on some processors.
template <class D, class V>
HWY_INLINE V positive_or_zero(D tag, V value) {
  return hn::IfThenZeroElse(hn::Lt(value, hn::Zero(tag)), value);
}

// The gradient of a ReLU with this input or output. For NaN, the gradient of the output passes, as in LibTorch.
template <class D, class V>
HWY_INLINE V passed_by_relu(D tag, V value, V gradient) {
  return hn::IfThenZeroElse(hn::Le(value, hn::Zero(tag)), gradient);
}

template <bool kHasResidual, bool kRelu, class S>
void normalise_rows(const Operation<Computed<S>>& operation, const S* x, const S* residual, S* y, int64_t num_rows, int64_t num_channels) {
  for_each_block(num_rows, [&](int64_t row, int64_t count) {
    for_each_vector<Computed<S>>(num_channels, [&](auto tag, int64_t channel) {
      const auto scale = hn::LoadU(tag, operation.scale + channel);
      const auto shift = hn::LoadU(tag, operation.shift + channel);
      for (int64_t r = row; r < row + count; ++r) {
        const int64_t i = r * num_channels + channel;
        auto value = hn::MulAdd(load(tag, x + i), scale, shift);
        if constexpr (kHasResidual) value = hn::Add(value, load(tag, residual + i));
        if constexpr (kRelu) value = positive_or_zero(tag, value);
        store(value, tag, y + i);
      }
    });
  });
}

// The values whose sign decides where dy passes through the ReLU.
enum class Mask { kNone, kOfOutput, kOfInput };

template <Mask kMask, bool kStores, class S>
void add_gradients(const Operation<Computed<S>>& operation, const S* dy, const S* x, const S* y, const Computed<S>* mean, S* masked,
                   int64_t num_rows, int64_t num_channels, double* sum_dy, double* sum_dy_x) {
  std::fill_n(sum_dy, num_channels, 0.0);
  std::fill_n(sum_dy_x, num_channels, 0.0);
  for_each_block(num_rows, [&](int64_t row, int64_t count) {
    for_each_vector<Computed<S>>(num_channels, [&](auto tag, int64_t channel) {
      constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(decltype(tag)()));
      const auto scale = hn::LoadU(tag, operation.scale + channel);
      const auto shift = hn::LoadU(tag, operation.shift + channel);
      const auto centre = hn::LoadU(tag, mean + channel);
      const auto zero = hn::Zero(tag);
      auto sum = zero;
      auto product = zero;
      for (int64_t r = row; r < row + count; ++r) {
        const int64_t i = r * num_channels + channel;
        const auto input = load(tag, x + i);
        auto gradient = load(tag, dy + i);
        if constexpr (kMask == Mask::kOfOutput) gradient = passed_by_relu(tag, load(tag, y + i), gradient);
        if constexpr (kMask == Mask::kOfInput) gradient = passed_by_relu(tag, hn::MulAdd(input, scale, shift), gradient);
        if constexpr (kStores) store(gradient, tag, masked + i);
        sum = hn::Add(sum, gradient);
        product = hn::MulAdd(gradient, hn::Sub(input, centre), product);
      }
      HWY_ALIGN Computed<S> sums[kLanes];
      HWY_ALIGN Computed<S> products[kLanes];
      hn::Store(sum, tag, sums);
      hn::Store(product, tag, products);
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        sum_dy[channel + lane] += sums[lane];
        sum_dy_x[channel + lane] += products[lane];
      }
    });
  });
}

template <bool kRelu, class S>
void combine_gradients(const Operation<Computed<S>>& operation, const S* dy, const S* x, const Computed<S>* dy_factor,
                       const Computed<S>* x_factor, const Computed<S>* constant, S* dx, int64_t num_rows, int64_t num_channels) {
  for_each_block(num_rows, [&](int64_t row, int64_t count) {
    for_each_vector<Computed<S>>(num_channels, [&](auto tag, int64_t channel) {
      const auto scale = hn::LoadU(tag, operation.scale + channel);
      const auto shift = hn::LoadU(tag, operation.shift + channel);
      const auto a = hn::LoadU(tag, dy_factor + channel);
      const auto b = hn::LoadU(tag, x_factor + channel);
      const auto c = hn::LoadU(tag, constant + channel);
      for (int64_t r = row; r < row + count; ++r) {
        const int64_t i = r * num_channels + channel;
        const auto input = load(tag, x + i);
        auto gradient = load(tag, dy + i);
        if constexpr (kRelu) gradient = passed_by_relu(tag, hn::MulAdd(input, scale, shift), gradient);
        store(hn::MulAdd(gradient, a, hn::MulAdd(input, b, c)), tag, dx + i);
      }
    });
  });
}

template <class S>
void normalise(const Operation<Computed<S>>& operation, const S* x, const S* residual, S* y, int64_t num_rows, int64_t num_channels) {
  const auto act = residual != nullptr ? (operation.relu ? &normalise_rows<true, true, S> : &normalise_rows<true, false, S>)
                                       : (operation.relu ? &normalise_rows<false, true, S> : &normalise_rows<false, false, S>);
  act(operation, x, residual, y, num_rows, num_channels);
}

template <class S>
void gradient_sums(const Operation<Computed<S>>& operation, const S* dy, const S* x, const S* y, const Computed<S>* mean, S* masked,
                   int64_t num_rows, int64_t num_channels, double* sum_dy, double* sum_dy_x) {
  auto act = &add_gradients<Mask::kNone, false, S>;
  if (operation.relu && y == nullptr) act = &add_gradients<Mask::kOfInput, false, S>;
  if (operation.relu && y != nullptr) act = &add_gradients<Mask::kOfOutput, false, S>;
  if (operation.relu && y != nullptr && masked != nullptr) act = &add_gradients<Mask::kOfOutput, true, S>;
  act(operation, dy, x, y, mean, masked, num_rows, num_channels, sum_dy, sum_dy_x);
}

template <class S>
void input_gradient(const Operation<Computed<S>>& operation, const S* dy, const S* x, const Computed<S>* dy_factor,
                    const Computed<S>* x_factor, const Computed<S>* constant, S* dx, int64_t num_rows, int64_t num_channels) {
  const auto act = operation.relu ? &combine_gradients<true, S> : &combine_gradients<false, S>;
  act(operation, dy, x, dy_factor, x_factor, constant, dx, num_rows, num_channels);
}

template <class S>
Kernels<S> kernels_of() {
  return {&moments_of<S>, &normalise<S>, &gradient_sums<S>, &input_gradient<S>};
}
// Highway cannot export templates.
Kernels<float> FloatKernels() { return kernels_of<float>(); }
Kernels<double> DoubleKernels() { return kernels_of<double>(); }
Kernels<BFloat16> BFloatKernels() { return kernels_of<BFloat16>(); }

}  // namespace trainer::nn::fused_norm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::nn::fused_norm {

HWY_EXPORT(FloatKernels);
HWY_EXPORT(DoubleKernels);
HWY_EXPORT(BFloatKernels);

template <>
Kernels<float> kernels() {
  return HWY_DYNAMIC_DISPATCH(FloatKernels)();
}
template <>
Kernels<double> kernels() {
  return HWY_DYNAMIC_DISPATCH(DoubleKernels)();
}
template <>
Kernels<BFloat16> kernels() {
  return HWY_DYNAMIC_DISPATCH(BFloatKernels)();
}

}  // namespace trainer::nn::fused_norm
#endif
