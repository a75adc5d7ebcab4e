#pragma once
// Output that depends only on the build, such as that of `trainer --help` and `trainer list models`. commands/write_generated_files.cpp
// writes it during the build, so that these commands need not load LibTorch, which takes a large part of a second.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainer::cli {

struct Answer {
  std::string_view command_line;  // the arguments, separated by spaces
  std::string_view text;
};

// The answers that were written during the build.
std::span<const Answer> all_answers();

// The text of the answer for these arguments; null if there is none.
const std::string_view* find_answer(std::span<const Answer> answers, const std::vector<std::string>& args);

}  // namespace trainer::cli
