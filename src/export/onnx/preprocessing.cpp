#include "export/onnx/preprocessing.h"

#include <algorithm>
#include <numbers>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>

namespace trainer::onnx {
namespace {

using Ints = std::vector<int64_t>;
using Tensors = std::vector<torch::Tensor>;

Ints elements(const torch::Tensor& list) { return {list.const_data_ptr<int64_t>(), list.const_data_ptr<int64_t>() + list.numel()}; }

// Computes an operator like a reader of the file.
torch::Tensor computed(std::string_view op, const Tensors& inputs) {
  using Compute = torch::Tensor (*)(const Tensors&);
  static const std::unordered_map<std::string_view, Compute> kOperators = {
      {"Abs", [](const Tensors& x) { return x[0].abs(); }},
      {"Add", [](const Tensors& x) { return x[0] + x[1]; }},
      {"And", [](const Tensors& x) { return x[0].logical_and(x[1]); }},
      {"Concat", [](const Tensors& x) { return torch::cat(x); }},
      {"CumSum", [](const Tensors& x) { return x[0].cumsum(x[1].item<int64_t>()); }},
      {"Div", [](const Tensors& x) { return x[0].is_floating_point() ? x[0] / x[1] : x[0].div(x[1], "trunc"); }},
      {"Equal", [](const Tensors& x) { return x[0] == x[1]; }},
      {"Expand", [](const Tensors& x) { return x[0].expand(elements(x[1])); }},
      {"Floor", [](const Tensors& x) { return x[0].floor(); }},
      {"Greater", [](const Tensors& x) { return x[0] > x[1]; }},
      {"Less", [](const Tensors& x) { return x[0] < x[1]; }},
      {"Max", [](const Tensors& x) { return x[0].maximum(x[1]); }},
      {"Min", [](const Tensors& x) { return x[0].minimum(x[1]); }},
      {"Mul", [](const Tensors& x) { return x[0] * x[1]; }},
      {"Range", [](const Tensors& x) { return torch::arange(x[0].item<int64_t>(), x[1].item<int64_t>(), x[2].item<int64_t>()); }},
      {"ReduceSum", [](const Tensors& x) { return x[0].sum(elements(x[1]), /*keepdim=*/true); }},
      {"Relu", [](const Tensors& x) { return x[0].relu(); }},
      {"Round", [](const Tensors& x) { return x[0].round(); }},
      {"Sign", [](const Tensors& x) { return x[0].sign(); }},
      {"Sin", [](const Tensors& x) { return x[0].sin(); }},
      {"Sub", [](const Tensors& x) { return x[0] - x[1]; }},
      {"Unsqueeze", [](const Tensors& x) { return x[0].unsqueeze(x[1].item<int64_t>()); }},
      {"Where", [](const Tensors& x) { return torch::where(x[0], x[1], x[2]); }},
  };
  return kOperators.at(op)(inputs);
}

// A value that depends on the image and has a name in the graph, or is known.
struct Term {
  std::string name = {};
  torch::Tensor known = {};

  bool is_known() const { return known.defined(); }
  bool equals(const Term& other) const { return is_known() && other.is_known() && known.equal(other.known); }
};
using Terms = std::vector<Term>;

// Adds the steps one after another. Sizes and positions are int64 scalars; lists have one dimension. Known values are computed at once,
// because many readers do not compute with sizes.
class Preprocessor {
 public:
  Preprocessor(Graph& graph, const std::string& images, const std::optional<exported::Interface::Size>& size) : graph_(graph) {
    const auto shape = size ? Term{} : Term{graph_.add_node("Shape", {images})};
    height_ = size ? number(size->height) : node("Gather", {shape, number(1)});
    width_ = size ? number(size->width) : node("Gather", {shape, number(2)});
    const auto planar = graph_.add_node("Transpose", {images}, {{"perm", Ints{0, 3, 1, 2}}});
    pixels_ = cast({planar}, ElementType::kFloat);
  }

  void add(const exported::ResizeStep& step) {
    const auto size = size_after(step);
    const auto& height = size.first;
    const auto& width = size.second;
    const auto of_columns = weights(width_, width, step.interpolation);
    const auto of_rows = weights(height_, height, step.interpolation);
    const auto columns_of = [&](const Term& pixels) { return height_.equals(height) ? pixels : resized_columns(pixels, of_rows); };
    const auto rows_of = [&](const Term& pixels) { return width_.equals(width) ? pixels : resized_rows(pixels, of_columns); };
    // The pass that comes first is chosen as in Pillow (data/resample.cpp).
    const auto less_height = node("Sub", {height_, height});
    const auto less_width = node("Mul", {node("Sub", {width_, width}), number(2)});
    const auto begins_with_columns = node("And", {node("Greater", {less_height, number(0)}), node("Greater", {less_height, less_width})});
    const auto columns_first = [&] { return rows_of(columns_of(pixels_)); };
    const auto rows_first = [&] { return columns_of(rows_of(pixels_)); };
    if (begins_with_columns.is_known()) {
      pixels_ = begins_with_columns.known.item<bool>() ? columns_first() : rows_first();
    } else {
      pixels_ = {graph_.add_choice(
          begins_with_columns.name, [&] { return columns_first().name; }, [&] { return rows_first().name; })};
    }
    height_ = height;
    width_ = width;
  }

  void add(const exported::PadStep& step) {
    Term left, top, right, bottom;
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
    if (!height_.equals(height) || !width_.equals(width)) {
      pixels_ = node("Slice", {pixels_, node("Concat", {list(top), list(left)}),
                               node("Concat", {list(node("Add", {top, height})), list(node("Add", {left, width}))}), numbers({2, 3})});
    }
    height_ = height;
    width_ = width;
  }

  std::string normalized(const std::vector<float>& mean, const std::vector<float>& std) {
    const auto of_channels = [](const std::vector<float>& values) { return Term{.known = torch::tensor(values).view({-1, 1, 1})}; };
    return node("Div", {node("Sub", {node("Div", {pixels_, real(255)}), of_channels(mean)}), of_channels(std)}).name;
  }

 private:
  // Returns height and width of the resized image.
  std::pair<Term, Term> size_after(const exported::ResizeStep& step) {
    using Fit = exported::ResizeStep::Fit;
    if (step.fit == Fit::kExact) return {number(step.height), number(step.width)};
    if (step.fit == Fit::kInside) {
      const auto real_height = to_double(height_);
      const auto real_width = to_double(width_);
      const auto ratio = node("Div", {real_width, real_height});
      const auto wanted = node("Div", {exact(static_cast<double>(step.width)), exact(static_cast<double>(step.height))});
      const auto edge = [&](const Term& one, const Term& other, int64_t size) {
        const auto proportional = node("Round", {node("Mul", {node("Div", {one, other}), exact(static_cast<double>(size))})});
        return node("Max", {cast(proportional, ElementType::kInt64), number(1)});
      };
      return {node("Where", {node("Greater", {ratio, wanted}), edge(real_height, real_width, step.width), number(step.height)}),
              node("Where", {node("Less", {ratio, wanted}), edge(real_width, real_height, step.height), number(step.width)})};
    }
    const auto edge = node(step.fit == Fit::kShorter ? "Min" : "Max", {height_, width_});
    const auto resized = [&](const Term& one) {
      return node("Max", {node("Div", {node("Mul", {one, number(step.height)}), edge}), number(1)});
    };
    return {resized(height_), resized(width_)};
  }

  void pad(const Term& top, const Term& left, const Term& bottom, const Term& right, float fill) {
    const auto none = number(0);
    if (std::ranges::all_of(Terms{top, left, bottom, right}, [&](const Term& margin) { return margin.equals(none); })) return;
    pixels_ = node(
        "Pad", {pixels_, node("Concat", {numbers({0, 0}), list(top), list(left), numbers({0, 0}), list(bottom), list(right)}), real(fill)});
  }

  // Returns how many pixels to add at the beginning and the end of an edge of `extent` pixels to get `size` pixels. The first number is
  // half of their sum, rounded like Python's round().
  std::pair<Term, Term> margins(const Term& extent, const Term& size) {
    const auto before = half_of_difference(size, extent);
    return {before, node("Sub", {node("Sub", {size, extent}), before})};
  }

  Term node(const char* op, const Terms& inputs) {
    if (std::ranges::all_of(inputs, &Term::is_known)) {
      Tensors known;
      for (const auto& input : inputs) known.push_back(input.known);
      return {.known = computed(op, known)};
    }
    std::vector<std::string> names;
    for (const auto& input : inputs) names.push_back(name_of(input));
    return op == std::string_view("Concat") ? Term{graph_.add_node(op, std::move(names), {{"axis", int64_t{0}}})}
                                            : Term{graph_.add_node(op, std::move(names))};
  }
  std::string name_of(const Term& term) { return term.is_known() ? graph_.add_constant(term.known) : term.name; }

  static Term number(int64_t value) { return {.known = torch::tensor(value)}; }
  static Term numbers(const Ints& values) { return {.known = torch::tensor(values)}; }
  static Term real(float value) { return {.known = torch::tensor(value)}; }
  static Term exact(double value) { return {.known = torch::tensor(value, torch::kFloat64)}; }
  Term list(const Term& value) { return node("Unsqueeze", {value, numbers({0})}); }

  Term transposed(const Term& matrix) {
    return matrix.is_known() ? Term{.known = matrix.known.t()} : Term{graph_.add_node("Transpose", {matrix.name}, {{"perm", Ints{1, 0}}})};
  }

  // Returns (2i + 1) * `factor` for each pixel i of an edge of `size` pixels: the positions of the pixels' centres.
  Term middles(const Term& size, const Term& factor) {
    const auto indices = node("Range", {number(0), size, number(1)});
    return node("Mul", {node("Add", {node("Mul", {indices, number(2)}), number(1)}), factor});
  }

  // Matrices [before, after] with the weight of each pixel of an edge for each pixel of the resized edge. Pillow's weights are multiples of
  // 2^-22, and a sum near the middle of two pixel values is rounded as in Pillow only with the exact weights. float32 represents such sums
  // exactly if the weights are split into two numbers of 11 bits each, which TensorFloat-32 can represent.
  struct Weights {
    Term high;  // in units of 2^-11
    Term low;   // the remainder, in units of 2^-22
  };

  Weights weights(const Term& before, const Term& after, data::Interpolation interpolation) {
    if (interpolation == data::Interpolation::kNearest) return nearest(before, after);
    const auto to = middles(after, before);
    const auto from = node("Unsqueeze", {middles(before, after), numbers({1})});
    const auto unit = node("Mul", {node("Max", {before, after}), number(2)});
    const auto distance = node("Abs", {node("Div", {to_double(node("Sub", {to, from})), to_double(unit)})});
    const auto weight = interpolation == data::Interpolation::kBicubic   ? cubic(distance)
                        : interpolation == data::Interpolation::kLanczos ? lanczos(distance)
                                                                         : node("Relu", {node("Sub", {exact(1), distance})});
    const auto share = node("Div", {weight, node("ReduceSum", {weight, numbers({0})})});
    const auto size = node("Floor", {node("Add", {node("Abs", {node("Mul", {share, exact(1 << 22)})}), exact(0.5)})});
    const auto whole = node("Mul", {size, node("Sign", {share})});
    const auto high = node("Floor", {node("Add", {node("Div", {whole, exact(1 << 11)}), exact(0.5)})});
    const auto low = node("Sub", {whole, node("Mul", {high, exact(1 << 11)})});
    return {cast(high, ElementType::kFloat), cast(low, ElementType::kFloat)};
  }

  // Computes the positions as sums of steps, to accumulate the same rounding errors as Pillow.
  Weights nearest(const Term& before, const Term& after) {
    const auto step = node("Div", {to_double(before), to_double(after)});
    const auto rest = node("Expand", {step, list(node("Sub", {after, number(1)}))});
    const auto steps = node("Concat", {list(node("Mul", {step, exact(0.5)})), rest});
    const auto positions = node("Floor", {node("CumSum", {steps, number(0)})});
    const auto indices = node("Unsqueeze", {node("Range", {number(0), before, number(1)}), numbers({1})});
    const auto is_nearest = node("Equal", {indices, cast(positions, ElementType::kInt64)});
    const auto high = node("Mul", {cast(is_nearest, ElementType::kFloat), real(1 << 11)});
    return {high, node("Mul", {high, real(0)})};
  }

  Term resized_rows(const Term& pixels, const Weights& weights) {
    const auto high = node("MatMul", {pixels, weights.high});
    return joined(high, node("MatMul", {pixels, weights.low}));
  }

  Term resized_columns(const Term& pixels, const Weights& weights) {
    const auto high = node("MatMul", {transposed(weights.high), pixels});
    return joined(high, node("MatMul", {transposed(weights.low), pixels}));
  }

  // Combines the sums into pixels, rounded and clipped to [0, 255].
  Term joined(const Term& high, const Term& low) {
    const auto carried = node("Floor", {node("Add", {node("Mul", {low, real(1.0F / (1 << 11))}), real(1 << 10)})});
    const auto pixels = node("Floor", {node("Mul", {node("Add", {high, carried}), real(1.0F / (1 << 11))})});
    return node("Clip", {pixels, real(0), real(255)});
  }

  // ((a·x + b)·x + c)·x + d
  Term polynomial(const Term& x, double a, double b, double c, double d) {
    auto value = node("Add", {node("Mul", {x, exact(a)}), exact(b)});
    for (const double coefficient : {c, d}) value = node("Add", {node("Mul", {value, x}), exact(coefficient)});
    return value;
  }

  // Keys' cubic kernel with the parameter -1/2.
  Term cubic(const Term& distance) {
    const auto near = polynomial(distance, 1.5, -2.5, 0, 1);
    const auto far = polynomial(distance, -0.5, 2.5, -4, 2);
    const auto beyond_one = node("Where", {node("Less", {distance, exact(2)}), far, exact(0)});
    return node("Where", {node("Less", {distance, exact(1)}), near, beyond_one});
  }

  Term sinc(const Term& x) {
    const auto angle = node("Mul", {x, exact(std::numbers::pi)});
    return node("Where", {node("Equal", {angle, exact(0)}), exact(1), node("Div", {node("Sin", {angle}), angle})});
  }

  Term lanczos(const Term& distance) {
    const auto inside = node("Mul", {sinc(distance), sinc(node("Div", {distance, exact(3)}))});
    return node("Where", {node("Less", {distance, exact(3)}), inside, exact(0)});
  }

  Term cast(const Term& value, ElementType type) {
    if (!value.is_known()) return {graph_.add_node("Cast", {value.name}, {{"to", static_cast<int64_t>(type)}})};
    const auto dtype = type == ElementType::kFloat ? torch::kFloat32 : type == ElementType::kInt64 ? torch::kInt64 : torch::kFloat64;
    return {.known = value.known.to(dtype)};
  }
  Term to_double(const Term& value) { return cast(value, ElementType::kFloat64); }

  // Returns how many pixels to add at the beginning and the end of an edge of `extent` pixels to get at least `size` pixels.
  std::pair<Term, Term> missing(const Term& extent, const Term& size) {
    const auto all = node("Max", {node("Sub", {size, extent}), number(0)});
    const auto before = node("Div", {all, number(2)});
    return {before, node("Sub", {all, before})};
  }

  // Rounded half to even, like Python's round().
  Term half_of_difference(const Term& extent, const Term& size) {
    const auto half = node("Round", {node("Mul", {cast(node("Sub", {extent, size}), ElementType::kFloat), real(0.5)})});
    return cast(half, ElementType::kInt64);
  }

  Graph& graph_;
  Term pixels_;  // float32 [batch, channels, height, width]
  Term height_;
  Term width_;
};

}  // namespace

std::string add_preprocessing(const exported::Interface& interface, const std::string& images, Graph& graph) {
  const auto& preprocessing = *interface.preprocessing;
  Preprocessor preprocessor(graph, images, interface.image_size);
  for (const auto& step : preprocessing.steps) {
    std::visit([&](const auto& one) { preprocessor.add(one); }, step);
  }
  return preprocessor.normalized(preprocessing.mean, preprocessing.std);
}

}  // namespace trainer::onnx
