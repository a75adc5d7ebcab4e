#include "checkpoint/state/tree_differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "trainer/torch.h"

namespace trainer::state {
namespace {

// At most 60 bytes of the text, from index `from`, in quotes.
std::string excerpt(std::string_view text, size_t from = 0) {
  const auto shown = text.substr(from, 60);
  return fmt::format("\"{}{}{}\"", from > 0 ? "..." : "", shown, from + shown.size() < text.size() ? "..." : "");
}

std::string text_of(const Tree& tree) {
  struct Write {
    std::string operator()(std::monostate) const { return "nothing"; }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(int64_t value) const { return fmt::format("{}", value); }
    std::string operator()(double value) const { return fmt::format("{}", value); }
    std::string operator()(const std::string& value) const { return excerpt(value); }
    std::string operator()(const torch::Tensor& value) const { return describe(value); }
    std::string operator()(const List& value) const { return fmt::format("a list of {}", value.size()); }
    std::string operator()(const Dict& value) const { return fmt::format("a dictionary of {}", value.items().size()); }
  };
  return std::visit(Write(), tree.value());
}

// Returns the first lines that differ, or the part around the first difference if they are long.
std::string text_difference(std::string_view first, std::string_view second) {
  const auto common = static_cast<size_t>(std::ranges::mismatch(first, second).in1 - first.begin());
  const auto before = first.substr(0, common);
  const size_t begin = before.rfind('\n') + 1;  // 0 in the first line
  const size_t skipped = common - begin > 40 ? common - begin - 20 : 0;
  const auto line_of = [&](std::string_view text) { return excerpt(text.substr(begin, text.find('\n', begin) - begin), skipped); };
  const bool has_lines = first.find('\n') != std::string_view::npos || second.find('\n') != std::string_view::npos;
  const auto place = has_lines ? fmt::format(", in line {}", std::ranges::count(before, '\n') + 1) : "";
  return fmt::format("{}, not {}{}", line_of(first), line_of(second), place);
}

torch::Tensor bits_of(const torch::Tensor& tensor) {
  constexpr torch::ScalarType kIntegers[] = {torch::kUInt8, torch::kInt16, torch::kInt32, torch::kInt64};
  size_t exponent = 0;
  while (int64_t{1} << exponent < tensor.element_size()) ++exponent;
  return tensor.contiguous().view(kIntegers[exponent]);
}

class Comparison {
 public:
  std::vector<std::string> found;

  void compare(const Tree& first, const Tree& second, const std::string& path) {
    if (first.value().index() == second.value().index()) {
      if (const auto* dict = std::get_if<Dict>(&first.value())) return compare(*dict, std::get<Dict>(second.value()), path);
      if (const auto* list = std::get_if<List>(&first.value())) return compare(*list, std::get<List>(second.value()), path);
      if (const auto* tensor = std::get_if<torch::Tensor>(&first.value())) {
        return compare(*tensor, std::get<torch::Tensor>(second.value()), path);
      }
      if (const auto* text = std::get_if<std::string>(&first.value())) {
        const auto& other = std::get<std::string>(second.value());
        if (*text != other) report(path, text_difference(*text, other));
        return;
      }
    }
    const auto ours = text_of(first);
    const auto theirs = text_of(second);
    if (ours != theirs) report(path, fmt::format("{}, not {}", ours, theirs));
  }

 private:
  void report(const std::string& path, const std::string& what) { found.push_back(path + ": " + what); }

  void compare(const Dict& first, const Dict& second, const std::string& path) {
    const auto path_of = [&](const Key& key) { return path.empty() ? to_string(key) : path + '.' + to_string(key); };
    for (const auto& item : first.items()) {
      const auto* other = second.find(item.key);
      if (other != nullptr) {
        compare(item.value, *other, path_of(item.key));
      } else {
        report(path_of(item.key), "only in the first");
      }
    }
    for (const auto& item : second.items()) {
      if (first.find(item.key) == nullptr) report(path_of(item.key), "only in the second");
    }
  }

  void compare(const List& first, const List& second, const std::string& path) {
    if (first.size() != second.size()) return report(path, fmt::format("{} elements, not {}", first.size(), second.size()));
    for (size_t i = 0; i < first.size(); ++i) compare(first[i], second[i], fmt::format("{}[{}]", path, i));
  }

  void compare(const torch::Tensor& first, const torch::Tensor& second, const std::string& path) {
    if (first.sizes() != second.sizes() || first.scalar_type() != second.scalar_type()) {
      return report(path, fmt::format("{}, not {}", text_of(first), text_of(second)));
    }
    const auto different = bits_of(first).ne(bits_of(second));
    const auto count = different.sum().item<int64_t>();
    if (count == 0) return;
    const auto distance = (first.to(torch::kFloat64) - second.to(torch::kFloat64)).abs().masked_select(different).max().item<double>();
    report(path, fmt::format("{} of {} values, by up to {:.2g}", count, first.numel(), distance));
  }
};

}  // namespace

std::vector<std::string> differences(const Tree& first, const Tree& second) {
  Comparison comparison;
  comparison.compare(first, second, "");
  return std::move(comparison.found);
}

}  // namespace trainer::state
