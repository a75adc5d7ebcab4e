// Matrix products with sums in registers. Included once for each instruction set, like Highway's own "-inl.h" headers.
#if defined(TRAINER_NN_CONVOLUTION_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINER_NN_CONVOLUTION_PRODUCTS_INL_H
#undef TRAINER_NN_CONVOLUTION_PRODUCTS_INL_H
#else
#define TRAINER_NN_CONVOLUTION_PRODUCTS_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "nn/channels-inl.h"

// Loops with a small constant number of iterations must be unrolled, because otherwise the sums would be in memory, not in registers.
#ifndef TRAINER_UNROLL
#define TRAINER_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace trainer::nn::convolution::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using nn::HWY_NAMESPACE::for_each_vector;
using nn::HWY_NAMESPACE::kWideLanes;
using nn::HWY_NAMESPACE::WideTag;

// Sixteen registers have room for 6 × 2 sums, two columns and a factor; thirty-two registers have room for 12 × 2 sums.
constexpr int kMaxRows = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 12 : 6;

// The summands k of a product that lie on one line: a(r, k) is `a_step` values after a(r, k - 1), and b(k, j) is `b_step` values after
// b(k - 1, j).
struct Line {
  int64_t count, a_step, b_step;
};
// Summands in three nested loops: `planes.count` planes, in each `lines.count` lines, and on each line `steps.count` summands.
struct Planes {
  Line planes, lines, steps;
};

template <class Act, class T>
HWY_INLINE void for_each_line(const Line& line, const T* a, const T* b, const Act& act) {
  act(line, a, b);
}
template <class Act, class T>
HWY_INLINE void for_each_line(const Planes& all, const T* a, const T* b, const Act& act) {
  for (int64_t i = 0; i < all.planes.count; ++i, a += all.planes.a_step, b += all.planes.b_step) {
    for (int64_t j = 0; j < all.lines.count; ++j) act(all.steps, a + j * all.lines.a_step, b + j * all.lines.b_step);
  }
}

// What happens to a sum before it is stored.
struct NoFinish {
  template <class D, class V, class T>
  HWY_INLINE V operator()(D /*tag*/, V sum, int /*vector*/, const T* /*to*/) const {
    return sum;
  }
};

// Computes kRows rows × kVectors vectors of c = finish(a · b), or of c = finish(c + a · b) if kAdds. a(r, 0) is at a[r * a_row], c(r, j) at
// c[r * c_row + j].
template <int kRows, int kVectors, bool kAdds, class D, class Steps, class T = hn::TFromD<D>, class Finish>
HWY_INLINE void multiply_block(D tag, const T* HWY_RESTRICT a, int64_t a_row, const T* HWY_RESTRICT b, T* HWY_RESTRICT c, int64_t c_row,
                               const Steps& steps, const Finish& finish) {
  using V = hn::Vec<D>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
  V sums[kRows * kVectors];
  TRAINER_UNROLL for (int r = 0; r < kRows; ++r) {
    TRAINER_UNROLL for (int v = 0; v < kVectors; ++v) {
      sums[r * kVectors + v] = kAdds ? hn::LoadU(tag, c + r * c_row + v * kLanes) : hn::Zero(tag);
    }
  }
  for_each_line(steps, a, b, [&](const Line& line, const T* HWY_RESTRICT of_a, const T* HWY_RESTRICT of_b) HWY_ATTR {
    for (int64_t k = 0; k < line.count; ++k, of_a += line.a_step, of_b += line.b_step) {
      V columns[kVectors];
      TRAINER_UNROLL for (int v = 0; v < kVectors; ++v) columns[v] = hn::LoadU(tag, of_b + v * kLanes);
      TRAINER_UNROLL for (int r = 0; r < kRows; ++r) {
        const V factor = hn::Set(tag, of_a[r * a_row]);
        TRAINER_UNROLL for (int v = 0; v < kVectors; ++v) sums[r * kVectors + v] = hn::MulAdd(factor, columns[v], sums[r * kVectors + v]);
      }
    }
  });
  TRAINER_UNROLL for (int r = 0; r < kRows; ++r) {
    TRAINER_UNROLL for (int v = 0; v < kVectors; ++v) {
      T* const to = c + r * c_row + v * kLanes;
      hn::StoreU(finish(tag, sums[r * kVectors + v], v, to), tag, to);
    }
  }
}

// The same for any number of rows.
template <int kVectors, bool kAdds, int kRows = kMaxRows, class D, class Steps, class T = hn::TFromD<D>, class Finish = NoFinish>
HWY_INLINE void multiply_rows(D tag, int64_t num_rows, const T* a, int64_t a_row, const T* b, T* c, int64_t c_row, const Steps& steps,
                              const Finish& finish = {}) {
  constexpr int kFewer = kRows > 8 ? 8 : kRows - 1;
  // Two blocks of similar size are faster than a full one and one of few rows, whose sums wait for each other.
  const auto is_full = [&] { return num_rows >= kRows && (kRows <= 8 || num_rows == kRows || num_rows > 2 * kFewer); };
  for (; is_full(); num_rows -= kRows, a += kRows * a_row, c += kRows * c_row) {
    multiply_block<kRows, kVectors, kAdds>(tag, a, a_row, b, c, c_row, steps, finish);
  }
  if constexpr (kRows > 1) {
    if (num_rows > 0) multiply_rows<kVectors, kAdds, kFewer>(tag, num_rows, a, a_row, b, c, c_row, steps, finish);
  }
}

// Calls act(tag, number of vectors, first column) for blocks of columns that cover `num_columns`, a multiple of kChannels.
template <class T, class Act>
HWY_INLINE void for_each_column_block(int64_t num_columns, const Act& act) {
  int64_t column = 0;
  for (; column + 2 * kWideLanes<T> <= num_columns; column += 2 * kWideLanes<T>) {
    act(WideTag<T>(), std::integral_constant<int, 2>(), column);
  }
  for_each_vector<T, kChannels>(num_columns - column,
                                [&](auto tag, int64_t channel) { act(tag, std::integral_constant<int, 1>(), column + channel); });
}

}  // namespace trainer::nn::convolution::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
