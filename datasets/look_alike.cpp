#include "datasets/look_alike.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/utf8.h"

namespace trainer::datasets {
namespace {

// Characters that belong to the one before them: accents, the voicing marks of Japanese, and the vowels and final consonants of Korean.
bool continues_letter(char32_t character) {
  const auto lies_in = [character](char32_t first, char32_t last) { return character >= first && character <= last; };
  return lies_in(0x300, 0x36f) || lies_in(0x1160, 0x11ff) || lies_in(0x3099, 0x309a);
}

// The letters without spaces at both ends, each with what continues it.
std::vector<std::string_view> letters_of(std::string_view name) {
  constexpr const char* kSpaces = " \t";
  name.remove_prefix(std::min(name.find_first_not_of(kSpaces), name.size()));
  name = name.substr(0, name.find_last_not_of(kSpaces) + 1);
  std::vector<std::string_view> letters;
  while (!name.empty()) {
    size_t length = 0;
    do {
      length += std::max<size_t>(first_character(name.substr(length)).length, 1);
    } while (length < name.size() && continues_letter(first_character(name.substr(length)).code_point));
    letters.push_back(name.substr(0, length));
    name.remove_prefix(length);
  }
  return letters;
}

bool is_composed(std::string_view letter) { return letter.size() > 1 && first_character(letter).length == letter.size(); }
bool has_parts(std::string_view letter) { return first_character(letter).length < letter.size(); }

// The same for names that look alike.
std::string outline_of(std::string_view name) {
  std::string outline;
  for (const auto letter : letters_of(name)) outline += is_composed(letter) || has_parts(letter) ? "?" : letter;
  return outline;
}

// Of names with the same outline.
bool look_alike(std::string_view a, std::string_view b) {
  return a != b && std::ranges::equal(letters_of(a), letters_of(b), [](std::string_view letter_a, std::string_view letter_b) {
           return letter_a == letter_b || has_parts(letter_a) != has_parts(letter_b);
         });
}

}  // namespace

std::string look_alike_of(std::string_view name, const std::vector<std::string>& names) {
  const auto outline = outline_of(name);
  const auto found =
      std::ranges::find_if(names, [&](const auto& other) { return outline_of(other) == outline && look_alike(name, other); });
  return found == names.end() ? "" : *found;
}

std::string look_alike_hint(std::string_view name, const std::vector<std::string>& names) {
  const auto other = look_alike_of(name, names);
  if (other.empty()) return "";
  return fmt::format("; it looks like \"{}\", but has other spaces or another form of accented letters (Unicode NFC or NFD)", other);
}

std::string describe_look_alikes(const std::vector<std::string>& class_names) {
  std::unordered_map<std::string, std::vector<std::string>> by_outline;
  for (const auto& name : class_names) {
    auto& others = by_outline[outline_of(name)];
    const auto other = look_alike_of(name, others);
    if (!other.empty()) {
      return fmt::format(
          "the classes \"{}\" and \"{}\" look alike, but differ in spaces or in the form of accented letters (Unicode NFC and NFD); if "
          "they are one class, give both the same name",
          other, name);
    }
    others.push_back(name);
  }
  return "";
}

}  // namespace trainer::datasets
