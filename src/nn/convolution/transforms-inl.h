// The transforms of a tile by the matrices of Winograd's algorithm. Included once for each instruction set, like Highway's own "-inl.h"
// headers.
#if defined(TRAINER_NN_CONVOLUTION_TRANSFORMS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINER_NN_CONVOLUTION_TRANSFORMS_INL_H
#undef TRAINER_NN_CONVOLUTION_TRANSFORMS_INL_H
#else
#define TRAINER_NN_CONVOLUTION_TRANSFORMS_INL_H
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace trainer::nn::convolution::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The transforms for tiles of kTile×kTile: input d -> Bᵀ d B, weight g -> G g Gᵀ, sums m -> Aᵀ m A and, for the weight gradient, output
// gradient y -> A y Aᵀ. Each function transforms one column or row; the distance between values is `in` before and `out` after it.
template <int kTile>
struct Algorithm;

template <>
struct Algorithm<2> {
  static constexpr double kWeights[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};

  template <class V>
  static HWY_INLINE void input(const V* d, int in, V* o, int out) {
    o[0] = hn::Sub(d[0], d[2 * in]);
    o[out] = hn::Add(d[in], d[2 * in]);
    o[2 * out] = hn::Sub(d[2 * in], d[in]);
    o[3 * out] = hn::Sub(d[in], d[3 * in]);
  }
  template <class V>
  static HWY_INLINE void output(const V* m, int in, V* o, int out) {
    o[0] = hn::Add(hn::Add(m[0], m[in]), m[2 * in]);
    o[out] = hn::Sub(hn::Sub(m[in], m[2 * in]), m[3 * in]);
  }
  template <class V>
  static HWY_INLINE void gradient(const V* y, int in, V* o, int out) {
    const V y0 = y[0], y1 = y[in];
    o[0] = y0;
    o[out] = hn::Add(y0, y1);
    o[2 * out] = hn::Sub(y0, y1);
    o[3 * out] = hn::Neg(y1);
  }
};

template <>
struct Algorithm<4> {
  static constexpr double kWeights[6][3] = {{1.0 / 4, 0, 0},
                                            {-1.0 / 6, -1.0 / 6, -1.0 / 6},
                                            {-1.0 / 6, 1.0 / 6, -1.0 / 6},
                                            {1.0 / 24, 1.0 / 12, 1.0 / 6},
                                            {1.0 / 24, -1.0 / 12, 1.0 / 6},
                                            {0, 0, 1}};

  template <class V>
  static HWY_INLINE void input(const V* d, int in, V* o, int out) {
    const hn::DFromV<V> tag;
    const V two = hn::Set(tag, 2), four = hn::Set(tag, 4), five = hn::Set(tag, 5);
    const V d0 = d[0], d1 = d[in], d2 = d[2 * in], d3 = d[3 * in], d4 = d[4 * in], d5 = d[5 * in];
    o[0] = hn::MulAdd(four, d0, hn::NegMulAdd(five, d2, d4));
    const V a = hn::NegMulAdd(four, d2, d4), b = hn::NegMulAdd(four, d1, d3);
    o[out] = hn::Add(a, b);
    o[2 * out] = hn::Sub(a, b);
    const V e = hn::Sub(d4, d2), f = hn::Mul(two, hn::Sub(d3, d1));
    o[3 * out] = hn::Add(e, f);
    o[4 * out] = hn::Sub(e, f);
    o[5 * out] = hn::MulAdd(four, d1, hn::NegMulAdd(five, d3, d5));
  }
  template <class V>
  static HWY_INLINE void output(const V* m, int in, V* o, int out) {
    const hn::DFromV<V> tag;
    const V two = hn::Set(tag, 2), four = hn::Set(tag, 4), eight = hn::Set(tag, 8);
    const V a = hn::Add(m[in], m[2 * in]), b = hn::Sub(m[in], m[2 * in]);
    const V c = hn::Add(m[3 * in], m[4 * in]), d = hn::Sub(m[3 * in], m[4 * in]);
    o[0] = hn::Add(hn::Add(m[0], a), c);
    o[out] = hn::MulAdd(two, d, b);
    o[2 * out] = hn::MulAdd(four, c, a);
    o[3 * out] = hn::Add(hn::MulAdd(eight, d, b), m[5 * in]);
  }
  template <class V>
  static HWY_INLINE void gradient(const V* y, int in, V* o, int out) {
    const hn::DFromV<V> tag;
    const V two = hn::Set(tag, 2), four = hn::Set(tag, 4), eight = hn::Set(tag, 8);
    const V y0 = y[0], y1 = y[in], y2 = y[2 * in], y3 = y[3 * in];
    const V e = hn::Add(y0, y2), f = hn::Add(y1, y3);
    const V g = hn::MulAdd(four, y2, y0), h = hn::MulAdd(eight, y3, hn::Mul(two, y1));
    o[0] = y0;
    o[out] = hn::Add(e, f);
    o[2 * out] = hn::Sub(e, f);
    o[3 * out] = hn::Add(g, h);
    o[4 * out] = hn::Sub(g, h);
    o[5 * out] = y3;
  }
};

}  // namespace trainer::nn::convolution::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
