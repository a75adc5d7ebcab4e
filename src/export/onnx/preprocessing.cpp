#include "export/onnx/preprocessing.h"

#include <utility>

namespace trainer::onnx {
namespace {

using Ints = std::vector<int64_t>;
using Names = std::vector<std::string>;

// Adds the steps one after another. Sizes and positions are single numbers, int64; lists have one dimension.
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
    const auto shorter = step.keeps_proportions ? node("Min", {height_, width_}) : "";
    const auto resized = [&](const std::string& edge, int64_t size) {
      return step.keeps_proportions ? node("Div", {node("Mul", {edge, number(step.height)}), shorter}) : number(size);
    };
    const auto height = resized(height_, step.height);
    const auto width = resized(width_, step.width);
    const auto of_columns = weights(width_, width, step.interpolation);
    const auto of_rows = weights(height_, height, step.interpolation);
    // Pillow's choice of the first pass (data/resample.cpp).
    const auto less_height = node("Sub", {height_, height});
    const auto less_width = node("Mul", {node("Sub", {width_, width}), number(2)});
    const auto begins_with_columns = node("And", {node("Greater", {less_height, number(0)}), node("Greater", {less_height, less_width})});
    pixels_ = graph_.add_choice(
        begins_with_columns, [&] { return resized_rows(resized_columns(pixels_, of_rows), of_columns); },
        [&] { return resized_columns(resized_rows(pixels_, of_columns), of_rows); });
    height_ = height;
    width_ = width;
  }

  void add(const exported::CropStep& step) {
    const auto height = number(step.height);
    const auto width = number(step.width);
    if (step.may_pad) {
      const auto [top, bottom] = missing(height_, height);
      const auto [left, right] = missing(width_, width);
      const auto none = graph_.add_constant(torch::tensor({0, 0}));
      const auto pads = concatenate({none, list(top), list(left), none, list(bottom), list(right)});
      pixels_ = node("Pad", {pixels_, pads, real(0)});
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
  std::string node(const char* op, Names inputs) { return graph_.add_node(op, std::move(inputs)); }
  std::string number(int64_t value) { return graph_.add_constant(torch::tensor(value)); }
  std::string real(float value) { return graph_.add_constant(torch::tensor(value)); }
  std::string list(const std::string& value) { return node("Unsqueeze", {value, graph_.add_constant(torch::tensor(Ints{0}))}); }
  std::string concatenate(Names lists) { return graph_.add_node("Concat", std::move(lists), {{"axis", int64_t{0}}}); }

  std::string transposed(const std::string& matrix) { return graph_.add_node("Transpose", {matrix}, {{"perm", Ints{1, 0}}}); }
  std::string exact(double value) { return cast(real(static_cast<float>(value)), ElementType::kFloat64); }

  // 2i + 1 for each pixel i of an edge of `size` pixels, times `factor`: positions of the middles of pixels.
  std::string middles(const std::string& size, const std::string& factor) {
    const auto indices = node("Range", {number(0), size, number(1)});
    return node("Mul", {node("Add", {node("Mul", {indices, number(2)}), number(1)}), factor});
  }

  // Matrices [before, after] of the weight of each pixel of an edge for each pixel of the resized edge. Pillow's are multiples of 2^-22,
  // and sums that lie on the border between two pixel values are rounded as chance has rounded the weights. float32 holds such sums exactly
  // if the weights are two numbers of 11 bits each, and TensorFloat-32 holds these numbers.
  struct Weights {
    std::string high;  // in units of 2^-11
    std::string low;   // what is left, in units of 2^-22
  };

  Weights weights(const std::string& before, const std::string& after, data::Interpolation interpolation) {
    const auto to = middles(after, before);
    const auto from = node("Unsqueeze", {middles(before, after), graph_.add_constant(torch::tensor(Ints{1}))});
    const auto unit = node("Mul", {node("Max", {before, after}), number(2)});
    const auto distance = node("Abs", {node("Div", {to_double(node("Sub", {to, from})), to_double(unit)})});
    const auto weight =
        interpolation == data::Interpolation::kBicubic ? cubic(distance) : node("Relu", {node("Sub", {exact(1), distance})});
    const auto share = node("Div", {weight, node("ReduceSum", {weight, graph_.add_constant(torch::tensor(Ints{0}))})});
    const auto size = node("Floor", {node("Add", {node("Abs", {node("Mul", {share, exact(1 << 22)})}), exact(0.5)})});
    const auto whole = node("Mul", {size, node("Sign", {share})});
    const auto high = node("Floor", {node("Add", {node("Div", {whole, exact(1 << 11)}), exact(0.5)})});
    const auto low = node("Sub", {whole, node("Mul", {high, exact(1 << 11)})});
    return {cast(high, ElementType::kFloat), cast(low, ElementType::kFloat)};
  }

  std::string resized_rows(const std::string& pixels, const Weights& weights) {
    const auto high = node("MatMul", {pixels, weights.high});
    return joined(high, node("MatMul", {pixels, weights.low}));
  }

  std::string resized_columns(const std::string& pixels, const Weights& weights) {
    const auto high = node("MatMul", {transposed(weights.high), pixels});
    return joined(high, node("MatMul", {transposed(weights.low), pixels}));
  }

  // The pixels of these sums, rounded and cut off at 0 and 255.
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

  // Keys' cubic with the parameter -1/2.
  std::string cubic(const std::string& distance) {
    const auto near = polynomial(distance, 1.5, -2.5, 0, 1);
    const auto far = polynomial(distance, -0.5, 2.5, -4, 2);
    const auto beyond_one = node("Where", {node("Less", {distance, exact(2)}), far, exact(0)});
    return node("Where", {node("Less", {distance, exact(1)}), near, beyond_one});
  }

  std::string cast(const std::string& value, ElementType type) {
    return graph_.add_node("Cast", {value}, {{"to", static_cast<int64_t>(type)}});
  }
  std::string to_double(const std::string& value) { return cast(value, ElementType::kFloat64); }

  // How many pixels are added before and after an edge so that it has at least `size`.
  std::pair<std::string, std::string> missing(const std::string& extent, const std::string& size) {
    const auto all = node("Max", {node("Sub", {size, extent}), number(0)});
    const auto before = node("Div", {all, number(2)});
    return {before, node("Sub", {all, before})};
  }

  // Rounded as Python's round: halves to the even number.
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
