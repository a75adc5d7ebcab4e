#include "datasets/look_alike.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>

#include "base/text.h"

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

// Bytes that UTF-8 does not have.
constexpr char kComposed = '\xfe';
constexpr char kWithParts = '\xff';

struct Name {
  explicit Name(std::string_view name) : text(name), letters(letters_of(name)) {
    for (const auto letter : letters) form += has_parts(letter) ? kWithParts : is_composed(letter) ? kComposed : letter[0];
    outline = form;
    std::ranges::replace(outline, kWithParts, kComposed);
  }

  std::string_view text;
  std::vector<std::string_view> letters;
  std::string form;     // its letters of one byte, and what the others are
  std::string outline;  // the same for names that look alike
};

// The letters that a name of another form, but the same outline, must also have to look like this one.
std::string decisive_letters(const Name& name, std::string_view other_form) {
  std::string decisive;
  for (size_t i = 0; i < name.letters.size(); ++i) {
    if (name.form[i] == other_form[i]) {
      decisive += name.letters[i];
    } else {
      decisive += kComposed;
    }
  }
  return decisive;
}

bool look_alike(const Name& a, const Name& b) {
  return a.text != b.text && a.outline == b.outline && decisive_letters(a, b.form) == decisive_letters(b, a.form);
}

}  // namespace

std::string look_alike_of(std::string_view name, const std::vector<std::string>& names) {
  const Name sought(name);
  const auto found = std::ranges::find_if(names, [&](const auto& other) { return look_alike(sought, Name(other)); });
  return found == names.end() ? "" : *found;
}

std::string look_alike_hint(std::string_view name, const std::vector<std::string>& names) {
  const auto other = look_alike_of(name, names);
  if (other.empty()) return "";
  return fmt::format("; it looks like \"{}\", but has other spaces or another form of accented letters (Unicode NFC or NFD)", other);
}

std::string describe_look_alikes(const std::vector<std::string>& class_names) {
  const std::vector<Name> names(class_names.begin(), class_names.end());
  std::unordered_map<std::string, std::set<std::string>> forms;  // of each outline
  for (const auto& name : names) forms[name.outline].insert(name.form);
  // By its form, another one and its decisive letters. Comparing all pairs would take seconds for thousands of Chinese names.
  std::map<std::array<std::string, 3>, const Name*> first;
  for (const auto& name : names) {
    const Name* other = nullptr;
    for (const auto& form : forms.at(name.outline)) {
      const auto letters = decisive_letters(name, form);
      const auto found = first.find({form, name.form, letters});
      if (found != first.end() && found->second->text != name.text && (other == nullptr || found->second < other)) other = found->second;
      first.try_emplace({name.form, form, letters}, &name);
    }
    if (other != nullptr) {
      return fmt::format(
          "the classes \"{}\" and \"{}\" look alike, but differ in spaces or in the form of accented letters (Unicode NFC and NFD); if "
          "they are one class, give both the same name",
          other->text, name.text);
    }
  }
  return "";
}

}  // namespace trainer::datasets
