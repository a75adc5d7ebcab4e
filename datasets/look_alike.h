#pragma once
// Names that a reader takes for the same although their bytes differ: in spaces at their ends, or in the form of letters with accents (one
// character, or a letter and its accents; Unicode NFC and NFD).

#include <string>
#include <string_view>
#include <vector>

namespace trainer::datasets {

// The first of `names` that looks like `name` but is not the same; empty: none does. All are UTF-8. A letter is not compared with a
// composed one, so that "cafà" and "café" in different forms count too.
std::string look_alike_of(std::string_view name, const std::vector<std::string>& names);

// For the end of a message that refuses `name` because it is not one of `names`: what may be meant; may be empty.
std::string look_alike_hint(std::string_view name, const std::vector<std::string>& names);

// Of the first two names that look alike; empty: none do.
std::string describe_look_alikes(const std::vector<std::string>& class_names);

}  // namespace trainer::datasets
