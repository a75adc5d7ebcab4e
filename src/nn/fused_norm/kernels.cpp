#include "nn/fused_norm/kernels.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

// Compiled once for each instruction set that Highway supports; the best one is selected at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/fused_norm/kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// This header must follow them.
// clang-format off
#include <hwy/contrib/math/math-inl.h>
// clang-format on

#include "nn/channels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trainer::nn::fused_norm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using nn::HWY_NAMESPACE::for_each_vector;
using nn::HWY_NAMESPACE::kWideLanes;
using nn::HWY_NAMESPACE::load;
using nn::HWY_NAMESPACE::store;
using nn::HWY_NAMESPACE::WideTag;

// The number of rows that are added in T before their sum is added in float64.
constexpr int64_t kRows = 32;
// The number of channels whose sums are in the first-level cache while rows are added.
constexpr int64_t kPanelChannels = 256;

// One value for each channel of a panel.
template <class T>
struct Panel {
  HWY_ALIGN T values[kPanelChannels];

  template <class D>
  HWY_INLINE hn::Vec<D> zero_or(D tag, bool is_zero, int64_t channel) const {
    return is_zero ? hn::Zero(tag) : hn::Load(tag, values + channel);
  }
};

// Calls act(first row, number of rows, first channel, number of channels) for blocks of rows and panels of channels.
template <class Act>
HWY_INLINE void for_each_block(int64_t num_rows, int64_t num_channels, const Act& act) {
  for (int64_t row = 0; row < num_rows; row += kRows) {
    for (int64_t channel = 0; channel < num_channels; channel += kPanelChannels)
      act(row, std::min(kRows, num_rows - row), channel, std::min(kPanelChannels, num_channels - channel));
  }
}

// Calls act(tag, channel, first row, number of rows) for the vectors of a panel in a block. The rows of a group add to a sum while it is in
// a register. A group is not much larger than a page of memory, because a vector of channels through all rows of a wide block would take up
// to three times as long.
template <class T, class Act>
HWY_INLINE void for_each_group(int64_t row, int64_t count, int64_t width, const Act& act) {
  const int64_t group = std::max<int64_t>(4, 1024 / width);
  for (int64_t r = row; r < row + count; r += group) {
    for_each_vector<T>(width, [&](auto tag, int64_t channel) { act(tag, channel, r, std::min(group, row + count - r)); });
  }
}

template <class S>
void moments_of(const S* x, int64_t num_rows, int64_t num_channels, int64_t rows_before, double* mean, double* squares) {
  using T = Computed<S>;
  for_each_block(num_rows, num_channels, [&](int64_t row, int64_t count, int64_t first, int64_t width) {
    // `centre` is rounded, so the differences from it do not add up to 0; their sum `rest` corrects the mean and the squares.
    const T factor = T(1) / static_cast<T>(count);
    Panel<T> total, rest, square;
    for_each_group<T>(row, count, width, [&](auto tag, int64_t c, int64_t r, int64_t rows) {
      auto sum = total.zero_or(tag, r == row, c);
      for (const S* value = x + r * num_channels + first + c; rows > 0; --rows, value += num_channels) sum = hn::Add(sum, load(tag, value));
      hn::Store(sum, tag, total.values + c);
    });
    for_each_group<T>(row, count, width, [&](auto tag, int64_t c, int64_t r, int64_t rows) {
      const auto centre = hn::Mul(hn::Load(tag, total.values + c), hn::Set(tag, factor));
      auto sum = rest.zero_or(tag, r == row, c);
      auto squares_of_group = square.zero_or(tag, r == row, c);
      for (const S* value = x + r * num_channels + first + c; rows > 0; --rows, value += num_channels) {
        const auto difference = hn::Sub(load(tag, value), centre);
        sum = hn::Add(sum, difference);
        squares_of_group = hn::MulAdd(difference, difference, squares_of_group);
      }
      hn::Store(sum, tag, rest.values + c);
      hn::Store(squares_of_group, tag, square.values + c);
    });
    // Merges the moments of two parts (Chan, Golub and LeVeque 1979).
    const auto inverse = 1.0 / static_cast<double>(count);
    const auto share = static_cast<double>(count) / static_cast<double>(rows_before + row + count);
    const auto weight = static_cast<double>(rows_before + row) * share;
    for (int64_t c = 0; c < width; ++c) {
      const double rest_of_channel = rest.values[c];
      const T centre = total.values[c] * factor;
      const double delta = centre + rest_of_channel * inverse - mean[first + c];
      mean[first + c] += delta * share;
      squares[first + c] += square.values[c] - rest_of_channel * rest_of_channel * inverse + delta * delta * weight;
    }
  });
}

// Max is not used, because it returns 0 for NaN on some processors.
template <class D, class V>
HWY_INLINE V positive_or_zero(D tag, V value) {
  return hn::IfThenZeroElse(hn::Lt(value, hn::Zero(tag)), value);
}

// e to the power of value, for values from -87; infinite from 89 on. With fewer operations than Highway's function, which has a larger
// range.
template <class D, class V>
HWY_INLINE V power_of_e(D tag, V value) {
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(double)) {
    return hn::Exp(tag, value);
  } else {
    // The coefficients are those of expf in the Cephes library (S. Moshier).
    const auto set = [tag](float number) { return hn::Set(tag, number); };
    // Adding this number rounds to an integer, which is then in the lowest bits.
    const auto rounder = set(0x1.8p23F);
    const auto rounded = hn::MulAdd(value, set(1.44269504F), rounder);
    const auto exponent = hn::Sub(rounded, rounder);
    const auto rest = hn::NegMulAdd(exponent, set(-2.12194440e-4F), hn::NegMulAdd(exponent, set(0.693359375F), value));
    auto sum = hn::MulAdd(set(1.9875691500e-4F), rest, set(1.3981999507e-3F));
    for (const float factor : {8.3334519073e-3F, 4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F}) {
      sum = hn::MulAdd(sum, rest, set(factor));
    }
    const auto fraction = hn::MulAdd(hn::Mul(rest, rest), sum, hn::Add(rest, set(1)));
    const hn::RebindToSigned<D> integers;
    const auto bits = hn::ShiftLeft<23>(hn::Add(hn::BitCast(integers, rounded), hn::Set(integers, 127)));
    return hn::Mul(fraction, hn::BitCast(tag, bits));
  }
}

template <class D, class V>
HWY_INLINE V sigmoid(D tag, V value) {
  using T = hn::TFromD<D>;
  constexpr bool is_float = sizeof(T) == sizeof(float);
  const auto one = hn::Set(tag, 1);
  const auto most = hn::Set(tag, static_cast<T>(is_float ? 89 : 706));
  const auto least = hn::Set(tag, static_cast<T>(is_float ? -87 : -706));
  const auto negative = hn::Neg(value);
  const auto bounded = hn::IfThenElse(hn::Lt(negative, least), least, hn::IfThenElse(hn::Gt(negative, most), most, negative));
  return hn::Div(one, hn::Add(one, power_of_e(tag, bounded)));
}

template <FusedActivation kActivation, class D, class V>
HWY_INLINE V activate(D tag, V value) {
  if constexpr (kActivation == FusedActivation::kRelu) return positive_or_zero(tag, value);
  if constexpr (kActivation == FusedActivation::kRelu6) {
    const auto six = hn::Set(tag, 6);
    return hn::IfThenElse(hn::Gt(value, six), six, positive_or_zero(tag, value));
  }
  if constexpr (kActivation == FusedActivation::kHardswish) {
    const auto six = hn::Set(tag, 6);
    const auto above = hn::Add(value, hn::Set(tag, 3));
    const auto bounded = hn::IfThenElse(hn::Gt(above, six), six, positive_or_zero(tag, above));
    return hn::Div(hn::Mul(value, bounded), six);
  }
  if constexpr (kActivation == FusedActivation::kSilu) return hn::Mul(value, sigmoid(tag, value));
  return value;
}

// The gradient of an activation with this input; for a ReLU, its output may be given instead. Like LibTorch's, which passes a gradient
// through a ReLU, ReLU6 or hardswish of NaN.
template <FusedActivation kActivation, class D, class V>
HWY_INLINE V passed_back(D tag, V value, V gradient) {
  const auto zero = hn::Zero(tag);
  if constexpr (kActivation == FusedActivation::kRelu) return hn::IfThenZeroElse(hn::Le(value, zero), gradient);
  if constexpr (kActivation == FusedActivation::kRelu6)
    return hn::IfThenZeroElse(hn::Or(hn::Le(value, zero), hn::Ge(value, hn::Set(tag, 6))), gradient);
  if constexpr (kActivation == FusedActivation::kHardswish) {
    const auto three = hn::Set(tag, 3);
    const auto slope = hn::Add(hn::Div(value, three), hn::Set(tag, hn::TFromD<D>(0.5)));
    const auto inside = hn::IfThenElse(hn::Lt(value, three), hn::Mul(gradient, slope), gradient);
    return hn::IfThenZeroElse(hn::Le(value, hn::Neg(three)), inside);
  }
  if constexpr (kActivation == FusedActivation::kSilu) {
    const auto one = hn::Set(tag, 1);
    const auto share = sigmoid(tag, value);
    return hn::Mul(gradient, hn::Mul(share, hn::MulAdd(value, hn::Sub(one, share), one)));
  }
  return gradient;
}

// Results of at least this size go to memory past the caches, which would otherwise first read what is overwritten.
constexpr int64_t kStreamedBytes = 4 * 1024 * 1024;

template <class T>
bool can_stream(const T* to, int64_t num_rows, int64_t num_channels) {
  return num_rows * num_channels * static_cast<int64_t>(sizeof(T)) >= kStreamedBytes && num_channels % kWideLanes<T> == 0 &&
         reinterpret_cast<uintptr_t>(to) % (kWideLanes<T> * sizeof(T)) == 0;
}
inline bool can_stream(const BFloat16* /*to*/, int64_t /*num_rows*/, int64_t /*num_channels*/) { return false; }

// Writes act(tag, channel, position) to each position of `to`.
template <class S, class Act>
HWY_INLINE void write_values(int64_t num_rows, int64_t num_channels, S* to, const Act& act) {
  using T = Computed<S>;
  if (can_stream(to, num_rows, num_channels)) {
    if constexpr (std::is_same_v<S, T>) {
      for (int64_t i = 0; i < num_rows * num_channels; i += num_channels) {
        for (int64_t c = 0; c < num_channels; c += kWideLanes<T>) hn::Stream(act(WideTag<T>(), c, i + c), WideTag<T>(), to + i + c);
      }
      hwy::FlushStream();
    }
    return;
  }
  for (int64_t i = 0; i < num_rows * num_channels; i += num_channels)
    for_each_vector<T>(num_channels, [&](auto tag, int64_t c) { store(act(tag, c, i + c), tag, to + i + c); });
}

template <bool kHasResidual, FusedActivation kActivation, class S>
void normalise_rows(const Operation<Computed<S>>& operation, const S* x, const S* residual, S* y, int64_t num_rows, int64_t num_channels) {
  write_values(num_rows, num_channels, y, [&](auto tag, int64_t c, int64_t i) {
    auto value = hn::MulAdd(load(tag, x + i), hn::LoadU(tag, operation.scale + c), hn::LoadU(tag, operation.shift + c));
    if constexpr (kHasResidual) value = hn::Add(value, load(tag, residual + i));
    return activate<kActivation>(tag, value);
  });
}

// From which values the derivative of the activation is computed.
enum class Known { kInput, kOutput };

template <FusedActivation kActivation, Known kKnown, bool kStores, class S>
void add_gradients(const Operation<Computed<S>>& operation, const S* dy, const S* x, const S* y, const Computed<S>* mean, S* masked,
                   int64_t num_rows, int64_t num_channels, double* sum_dy, double* sum_dy_x) {
  for_each_block(num_rows, num_channels, [&](int64_t row, int64_t count, int64_t first, int64_t width) {
    Panel<Computed<S>> sum_of_block, product_of_block;
    for_each_group<Computed<S>>(row, count, width, [&](auto tag, int64_t c, int64_t r, int64_t rows) {
      const auto scale = hn::LoadU(tag, operation.scale + first + c);
      const auto shift = hn::LoadU(tag, operation.shift + first + c);
      const auto centre = hn::LoadU(tag, mean + first + c);
      auto sum = sum_of_block.zero_or(tag, r == row, c);
      auto product = product_of_block.zero_or(tag, r == row, c);
      for (int64_t i = r * num_channels + first + c; rows > 0; --rows, i += num_channels) {
        const auto input = load(tag, x + i);
        auto gradient = load(tag, dy + i);
        const auto known = kKnown == Known::kOutput ? load(tag, y + i) : hn::MulAdd(input, scale, shift);
        gradient = passed_back<kActivation>(tag, known, gradient);
        if constexpr (kStores) store(gradient, tag, masked + i);
        sum = hn::Add(sum, gradient);
        product = hn::MulAdd(gradient, hn::Sub(input, centre), product);
      }
      hn::Store(sum, tag, sum_of_block.values + c);
      hn::Store(product, tag, product_of_block.values + c);
    });
    for (int64_t c = 0; c < width; ++c) {
      sum_dy[first + c] += sum_of_block.values[c];
      sum_dy_x[first + c] += product_of_block.values[c];
    }
  });
}

template <FusedActivation kActivation, class S>
void combine_gradients(const Operation<Computed<S>>& operation, const S* dy, const S* x, const Computed<S>* dy_factor,
                       const Computed<S>* x_factor, const Computed<S>* constant, S* dx, int64_t num_rows, int64_t num_channels) {
  write_values(num_rows, num_channels, dx, [&](auto tag, int64_t c, int64_t i) {
    const auto input = load(tag, x + i);
    const auto value = hn::MulAdd(input, hn::LoadU(tag, operation.scale + c), hn::LoadU(tag, operation.shift + c));
    const auto gradient = passed_back<kActivation>(tag, value, load(tag, dy + i));
    const auto rest = hn::MulAdd(input, hn::LoadU(tag, x_factor + c), hn::LoadU(tag, constant + c));
    return hn::MulAdd(gradient, hn::LoadU(tag, dy_factor + c), rest);
  });
}

// Calls act<activation>().
template <class Act>
void with_activation(FusedActivation activation, const Act& act) {
  switch (activation) {
    case FusedActivation::kNone:
      return act.template operator()<FusedActivation::kNone>();
    case FusedActivation::kRelu:
      return act.template operator()<FusedActivation::kRelu>();
    case FusedActivation::kRelu6:
      return act.template operator()<FusedActivation::kRelu6>();
    case FusedActivation::kHardswish:
      return act.template operator()<FusedActivation::kHardswish>();
    case FusedActivation::kSilu:
      return act.template operator()<FusedActivation::kSilu>();
  }
}

template <class S>
void normalise(const Operation<Computed<S>>& operation, const S* x, const S* residual, S* y, int64_t num_rows, int64_t num_channels) {
  if (residual != nullptr) {
    const bool relu = operation.activation == FusedActivation::kRelu;
    const auto act = relu ? &normalise_rows<true, FusedActivation::kRelu, S> : &normalise_rows<true, FusedActivation::kNone, S>;
    return act(operation, x, residual, y, num_rows, num_channels);
  }
  with_activation(operation.activation, [&]<FusedActivation kActivation>() {
    normalise_rows<false, kActivation>(operation, x, residual, y, num_rows, num_channels);
  });
}

template <class S>
void gradient_sums(const Operation<Computed<S>>& operation, const S* dy, const S* x, const S* y, const Computed<S>* mean, S* masked,
                   int64_t num_rows, int64_t num_channels, double* sum_dy, double* sum_dy_x) {
  if (y != nullptr) {
    const auto act = masked != nullptr ? &add_gradients<FusedActivation::kRelu, Known::kOutput, true, S>
                                       : &add_gradients<FusedActivation::kRelu, Known::kOutput, false, S>;
    return act(operation, dy, x, y, mean, masked, num_rows, num_channels, sum_dy, sum_dy_x);
  }
  with_activation(operation.activation, [&]<FusedActivation kActivation>() {
    const auto act =
        masked != nullptr ? &add_gradients<kActivation, Known::kInput, true, S> : &add_gradients<kActivation, Known::kInput, false, S>;
    act(operation, dy, x, y, mean, masked, num_rows, num_channels, sum_dy, sum_dy_x);
  });
}

template <class S>
void input_gradient(const Operation<Computed<S>>& operation, const S* dy, const S* x, const Computed<S>* dy_factor,
                    const Computed<S>* x_factor, const Computed<S>* constant, S* dx, int64_t num_rows, int64_t num_channels) {
  with_activation(operation.activation, [&]<FusedActivation kActivation>() {
    combine_gradients<kActivation>(operation, dy, x, dy_factor, x_factor, constant, dx, num_rows, num_channels);
  });
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
