#include "export/onnx/preprocessing.h"

#include <numbers>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

namespace trainer::onnx {
namespace {

using Ints = std::vector<int64_t>;
using Names = std::vector<std::string>;

// Adds the steps one after another. Sizes and positions are int64 scalars; lists have one dimension.
class Preprocessor {
 public:
  Preprocessor(Graph& graph, const std::string& images) : graph_(graph) {
    const auto shape = node("Shape", {images});
    height_ = node("Gather", {shape, number(1)});
    width_ = node("Gather", {shape, number(2)});
    const auto planar = graph_.add_node("Transpose", {images}, {{"perm", Ints{0, 3, 1, 2}}});
    pixels_ = cast(planar, ElementType::kFloat);
  }

  void add(const exported::ResizeStep& step) {
    const auto [height, width] = size_after(step);
    const auto of_columns = weights(width_, width, step.interpolation);
    const auto of_rows = weights(height_, height, step.interpolation);
    // The pass that comes first is chosen as in Pillow (data/resample.cpp).
    const auto less_height = node("Sub", {height_, height});
    const auto less_width = node("Mul", {node("Sub", {width_, width}), number(2)});
    const auto begins_with_columns = node("And", {node("Greater", {less_height, number(0)}), node("Greater", {less_height, less_width})});
    pixels_ = graph_.add_choice(
        begins_with_columns, [&] { return resized_rows(resized_columns(pixels_, of_rows), of_columns); },
        [&] { return resized_columns(resized_rows(pixels_, of_columns), of_rows); });
    height_ = height;
    width_ = width;
  }

  void add(const exported::PadStep& step) {
    std::string left, top, right, bottom;
    if (const auto* frame = std::get_if<exported::PadStep::Frame>(&step.size)) {
      std::tie(top, bottom) = margins(height_, number(frame->height));
      std::tie(left, right) = margins(width_, number(frame->width));
    } else {
      const auto& given = std::get<exported::PadStep::Margins>(step.size);
      left = number(given.left);
      top = number(given.top);
      right = number(given.right);
      bottom = number(given.bottom);
    }
    pad(top, left, bottom, right, static_cast<float>(step.fill));
    height_ = node("Add", {height_, node("Add", {top, bottom})});
    width_ = node("Add", {width_, node("Add", {left, right})});
  }

  void add(const exported::CropStep& step) {
    const auto height = number(step.height);
    const auto width = number(step.width);
    if (step.may_pad) {
      const auto [top, bottom] = missing(height_, height);
      const auto [left, right] = missing(width_, width);
      pad(top, left, bottom, right, 0);
      height_ = node("Max", {height_, height});
      width_ = node("Max", {width_, width});
    }
    const auto top = half_of_difference(height_, height);
    const auto left = half_of_difference(width_, width);
    pixels_ = node("Slice", {pixels_, concatenate({list(top), list(left)}),
                             concatenate({list(node("Add", {top, height})), list(node("Add", {left, width}))}),
                             graph_.add_constant(torch::tensor({2, 3}))});
    height_ = height;
    width_ = width;
  }

  std::string normalized(const std::vector<float>& mean, const std::vector<float>& std) {
    const auto of_channels = [&](const std::vector<float>& values) { return graph_.add_constant(torch::tensor(values).view({-1, 1, 1})); };
    return node("Div", {node("Sub", {node("Div", {pixels_, real(255)}), of_channels(mean)}), of_channels(std)});
  }

 private:
  // Returns height and width of the resized image.
  std::pair<std::string, std::string> size_after(const exported::ResizeStep& step) {
    using Fit = exported::ResizeStep::Fit;
    if (step.fit == Fit::kExact) return {number(step.height), number(step.width)};
    if (step.fit == Fit::kInside) {
      const auto real_height = to_double(height_);
      const auto real_width = to_double(width_);
      const auto ratio = node("Div", {real_width, real_height});
      const auto wanted = node("Div", {exact(static_cast<double>(step.width)), exact(static_cast<double>(step.height))});
      const auto edge = [&](const std::string& one, const std::string& other, int64_t size) {
        const auto proportional = node("Round", {node("Mul", {node("Div", {one, other}), exact(static_cast<double>(size))})});
        return node("Max", {cast(proportional, ElementType::kInt64), number(1)});
      };
      return {node("Where", {node("Greater", {ratio, wanted}), edge(real_height, real_width, step.width), number(step.height)}),
              node("Where", {node("Less", {ratio, wanted}), edge(real_width, real_height, step.height), number(step.width)})};
    }
    const auto edge = node(step.fit == Fit::kShorter ? "Min" : "Max", {height_, width_});
    const auto resized = [&](const std::string& one) {
      return node("Max", {node("Div", {node("Mul", {one, number(step.height)}), edge}), number(1)});
    };
    return {resized(height_), resized(width_)};
  }

  void pad(const std::string& top, const std::string& left, const std::string& bottom, const std::string& right, float fill) {
    const auto none = graph_.add_constant(torch::tensor({0, 0}));
    pixels_ = node("Pad", {pixels_, concatenate({none, list(top), list(left), none, list(bottom), list(right)}), real(fill)});
  }

  // Returns how many pixels to add at the beginning and the end of an edge of `extent` pixels to get `size` pixels. The first number is
  // half of their sum, rounded like Python's round().
  std::pair<std::string, std::string> margins(const std::string& extent, const std::string& size) {
    const auto before = half_of_difference(size, extent);
    return {before, node("Sub", {node("Sub", {size, extent}), before})};
  }

  std::string node(const char* op, Names inputs) { return graph_.add_node(op, std::move(inputs)); }
  std::string number(int64_t value) { return graph_.add_constant(torch::tensor(value)); }
  std::string real(float value) { return graph_.add_constant(torch::tensor(value)); }
  std::string list(const std::string& value) { return node("Unsqueeze", {value, graph_.add_constant(torch::tensor(Ints{0}))}); }
  std::string concatenate(Names lists) { return graph_.add_node("Concat", std::move(lists), {{"axis", int64_t{0}}}); }

  std::string transposed(const std::string& matrix) { return graph_.add_node("Transpose", {matrix}, {{"perm", Ints{1, 0}}}); }
  std::string exact(double value) { return cast(real(static_cast<float>(value)), ElementType::kFloat64); }

  // Returns a number that float32 cannot represent, as a sum of float32 values.
  std::string exact_of(double value) {
    std::string sum = exact(0);
    for (int part = 0; part < 3; ++part) {
      const auto most = static_cast<float>(value);
      sum = node("Add", {sum, exact(most)});
      value -= most;
    }
    return sum;
  }

  // Returns (2i + 1) * `factor` for each pixel i of an edge of `size` pixels: the positions of the pixels' centres.
  std::string middles(const std::string& size, const std::string& factor) {
    const auto indices = node("Range", {number(0), size, number(1)});
    return node("Mul", {node("Add", {node("Mul", {indices, number(2)}), number(1)}), factor});
  }

  // Matrices [before, after] with the weight of each pixel of an edge for each pixel of the resized edge. Pillow's weights are multiples of
  // 2^-22, and a sum near the middle of two pixel values is rounded as in Pillow only with the exact weights. float32 represents such sums
  // exactly if the weights are split into two numbers of 11 bits each, which TensorFloat-32 can represent.
  struct Weights {
    std::string high;  // in units of 2^-11
    std::string low;   // the remainder, in units of 2^-22
  };

  Weights weights(const std::string& before, const std::string& after, data::Interpolation interpolation) {
    if (interpolation == data::Interpolation::kNearest) return nearest(before, after);
    const auto to = middles(after, before);
    const auto from = node("Unsqueeze", {middles(before, after), graph_.add_constant(torch::tensor(Ints{1}))});
    const auto unit = node("Mul", {node("Max", {before, after}), number(2)});
    const auto distance = node("Abs", {node("Div", {to_double(node("Sub", {to, from})), to_double(unit)})});
    const auto weight = interpolation == data::Interpolation::kBicubic   ? cubic(distance)
                        : interpolation == data::Interpolation::kLanczos ? lanczos(distance)
                                                                         : node("Relu", {node("Sub", {exact(1), distance})});
    const auto share = node("Div", {weight, node("ReduceSum", {weight, graph_.add_constant(torch::tensor(Ints{0}))})});
    const auto size = node("Floor", {node("Add", {node("Abs", {node("Mul", {share, exact(1 << 22)})}), exact(0.5)})});
    const auto whole = node("Mul", {size, node("Sign", {share})});
    const auto high = node("Floor", {node("Add", {node("Div", {whole, exact(1 << 11)}), exact(0.5)})});
    const auto low = node("Sub", {whole, node("Mul", {high, exact(1 << 11)})});
    return {cast(high, ElementType::kFloat), cast(low, ElementType::kFloat)};
  }

  // Computes the positions as sums of steps, to accumulate the same rounding errors as Pillow.
  Weights nearest(const std::string& before, const std::string& after) {
    const auto step = node("Div", {to_double(before), to_double(after)});
    const auto rest = node("Expand", {step, list(node("Sub", {after, number(1)}))});
    const auto steps = concatenate({list(node("Mul", {step, exact(0.5)})), rest});
    const auto positions = node("Floor", {node("CumSum", {steps, number(0)})});
    const auto indices = node("Unsqueeze", {node("Range", {number(0), before, number(1)}), graph_.add_constant(torch::tensor(Ints{1}))});
    const auto is_nearest = node("Equal", {indices, cast(positions, ElementType::kInt64)});
    const auto high = node("Mul", {cast(is_nearest, ElementType::kFloat), real(1 << 11)});
    return {high, node("Mul", {high, real(0)})};
  }

  std::string resized_rows(const std::string& pixels, const Weights& weights) {
    const auto high = node("MatMul", {pixels, weights.high});
    return joined(high, node("MatMul", {pixels, weights.low}));
  }

  std::string resized_columns(const std::string& pixels, const Weights& weights) {
    const auto high = node("MatMul", {transposed(weights.high), pixels});
    return joined(high, node("MatMul", {transposed(weights.low), pixels}));
  }

  // Combines the sums into pixels, rounded and clipped to [0, 255].
  std::string joined(const std::string& high, const std::string& low) {
    const auto carried = node("Floor", {node("Mul", {node("Add", {low, real(1 << 21)}), real(1.0F / (1 << 11))})});
    const auto pixels = node("Floor", {node("Mul", {node("Add", {high, carried}), real(1.0F / (1 << 11))})});
    return node("Clip", {pixels, real(0), real(255)});
  }

  // ((a·x + b)·x + c)·x + d
  std::string polynomial(const std::string& x, double a, double b, double c, double d) {
    auto value = node("Add", {node("Mul", {x, exact(a)}), exact(b)});
    for (const double coefficient : {c, d}) value = node("Add", {node("Mul", {value, x}), exact(coefficient)});
    return value;
  }

  // Keys' cubic kernel with the parameter -1/2.
  std::string cubic(const std::string& distance) {
    const auto near = polynomial(distance, 1.5, -2.5, 0, 1);
    const auto far = polynomial(distance, -0.5, 2.5, -4, 2);
    const auto beyond_one = node("Where", {node("Less", {distance, exact(2)}), far, exact(0)});
    return node("Where", {node("Less", {distance, exact(1)}), near, beyond_one});
  }

  std::string sinc(const std::string& x) {
    const auto angle = node("Mul", {x, exact_of(std::numbers::pi)});
    return node("Where", {node("Equal", {angle, exact(0)}), exact(1), node("Div", {node("Sin", {angle}), angle})});
  }

  std::string lanczos(const std::string& distance) {
    const auto inside = node("Mul", {sinc(distance), sinc(node("Div", {distance, exact(3)}))});
    return node("Where", {node("Less", {distance, exact(3)}), inside, exact(0)});
  }

  std::string cast(const std::string& value, ElementType type) {
    return graph_.add_node("Cast", {value}, {{"to", static_cast<int64_t>(type)}});
  }
  std::string to_double(const std::string& value) { return cast(value, ElementType::kFloat64); }

  // Returns how many pixels to add at the beginning and the end of an edge of `extent` pixels to get at least `size` pixels.
  std::pair<std::string, std::string> missing(const std::string& extent, const std::string& size) {
    const auto all = node("Max", {node("Sub", {size, extent}), number(0)});
    const auto before = node("Div", {all, number(2)});
    return {before, node("Sub", {all, before})};
  }

  // Rounded half to even, like Python's round().
  std::string half_of_difference(const std::string& extent, const std::string& size) {
    const auto half = node("Round", {node("Mul", {cast(node("Sub", {extent, size}), ElementType::kFloat), real(0.5)})});
    return cast(half, ElementType::kInt64);
  }

  Graph& graph_;
  std::string pixels_;  // float32 [batch, channels, height, width]
  std::string height_;
  std::string width_;
};

}  // namespace

std::string add_preprocessing(const exported::Preprocessing& preprocessing, const std::string& images, Graph& graph) {
  Preprocessor preprocessor(graph, images);
  for (const auto& step : preprocessing.steps) {
    std::visit([&](const auto& one) { preprocessor.add(one); }, step);
  }
  return preprocessor.normalized(preprocessing.mean, preprocessing.std);
}

}  // namespace trainer::onnx
