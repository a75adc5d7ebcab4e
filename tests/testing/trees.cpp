#include "tests/testing/trees.h"

#include <fmt/format.h>

#include <sstream>

#include "trainer/torch.h"

namespace trainer::testing {
namespace {

void describe(std::string& out, const std::string& path, const state::Tree& tree);

struct Describe {
  std::string& out;
  const std::string& path;

  void line(const std::string& text) const { out += path + ": " + text + '\n'; }
  void operator()(std::monostate) const { line("None"); }
  void operator()(bool value) const { line(value ? "True" : "False"); }
  void operator()(int64_t value) const { line(std::to_string(value)); }
  void operator()(double value) const { line(fmt::format("{:a}", value)); }
  void operator()(const std::string& value) const { line('"' + value + '"'); }
  void operator()(const torch::Tensor& tensor) const {
    std::ostringstream text;
    text << tensor.scalar_type() << tensor.sizes() << tensor.strides();
    const auto bytes = tensor.clone(torch::MemoryFormat::Contiguous).view(-1).view(torch::kByte);
    for (int64_t i = 0; i < bytes.numel(); ++i) text << fmt::format(" {:02x}", bytes.const_data_ptr<uint8_t>()[i]);
    line(text.str());
  }
  void operator()(const state::List& list) const {
    line(fmt::format("{} elements", list.size()));
    for (size_t i = 0; i < list.size(); ++i) describe(out, fmt::format("{}[{}]", path, i), list[i]);
  }
  void operator()(const state::Dict& dict) const {
    line(fmt::format("{} items", dict.items().size()));
    for (const auto& item : dict.items()) {
      const bool is_text = std::holds_alternative<std::string>(item.key);
      describe(out, fmt::format("{}.{}{}", path, is_text ? "" : "#", state::to_string(item.key)), item.value);
    }
  }
};

void describe(std::string& out, const std::string& path, const state::Tree& tree) { std::visit(Describe{out, path}, tree.value()); }

state::Dict make_tensors() {
  const auto numbers = torch::arange(24, torch::kFloat32).reshape({2, 3, 4});
  state::Dict tensors;
  for (const auto dtype : {torch::kFloat64, torch::kFloat32, torch::kFloat16, torch::kBFloat16, torch::kInt64, torch::kInt32, torch::kInt16,
                           torch::kInt8, torch::kUInt8, torch::kBool, torch::kUInt16, torch::kUInt32, torch::kUInt64, torch::kFloat8_e4m3fn,
                           torch::kFloat8_e5m2, torch::kComplexFloat, torch::kComplexDouble}) {
    tensors.add(toString(dtype), numbers.to(dtype));
  }
  tensors.add("view", numbers);
  tensors.add("transposed view", numbers.transpose(0, 2));
  tensors.add("middle of it", numbers.slice(2, 1, 3));
  tensors.add("repeated", torch::ones({1}).expand({3, 2}));
  tensors.add("channels last", torch::arange(48, torch::kFloat32).reshape({1, 3, 4, 4}).contiguous(torch::MemoryFormat::ChannelsLast));
  tensors.add("number", torch::tensor(2.5));
  tensors.add("empty", torch::empty({0, 3}));
  return tensors;
}

}  // namespace

std::string describe(const state::Tree& tree) {
  std::string out;
  describe(out, "", tree);
  return out;
}

state::Tree make_tree() {
  state::Dict numbers;
  int64_t index = 0;
  for (const int64_t number : {int64_t{0}, int64_t{255}, int64_t{256}, int64_t{-1}, int64_t{1} << 31, -(int64_t{1} << 31),
                               std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
    numbers.add(index++, number);
  }
  state::Dict root;
  root.add("tensors", make_tensors());
  root.add("numbers", std::move(numbers));
  root.add("fractions", state::List{0.1, -0.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::denorm_min()});
  root.add("flags", state::List{true, false});
  root.add("nothing", state::Tree());
  root.add("text", "two\nlines, \"quoted\", \xc3\xa4");
  root.add("the same text", "two\nlines, \"quoted\", \xc3\xa4");
  root.add("no text", "");
  root.add("empty list", state::List{});
  root.add("empty dictionary", state::Dict{});
  root.add("nested", state::List{state::List{state::List{1}}});
  return root;
}

}  // namespace trainer::testing
