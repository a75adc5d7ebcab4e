#include "data/transforms/size.h"

#include <fmt/format.h>

#include "base/plural.h"

namespace trainer::data {

void SizeKey::describe(KeyTable& keys, const std::string& doc) {
  keys.add("size", values_, {.min = 1, .max = kMaxPixels, .unit = "pixels", .doc = doc, .required = true, .may_be_one = true});
  keys.refuse("size", [this]() -> std::string {
    if (values_.size() == 1 || values_.size() == 2) return "";
    return fmt::format("{} were given; give one number, or [height, width]", counted(values_.size(), "number"));
  });
}

std::string SizeKey::text() const { return is_one_number() ? fmt::format("{}", height()) : fmt::format("{} x {}", height(), width()); }

std::string to_string(const Frame& frame) {
  return fmt::format("{}{} x {} pixels", frame.is_exact ? "" : "at least ", frame.height, frame.width);
}

}  // namespace trainer::data
