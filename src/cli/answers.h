#pragma once
// The output of command lines that depends only on the build, such as `trainer --help` and `trainer list models`.
// commands/write_generated_files.cpp writes it during the build, so that these commands need not load LibTorch, which takes a large part of
// a second.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainer::cli {

struct Answer {
  std::string_view command_line;  // the arguments with a space between two
  std::string_view text;
};

// The answers that were written during the build.
std::span<const Answer> all_answers();

// The text for these arguments; null if it is not known.
const std::string_view* find_answer(std::span<const Answer> answers, const std::vector<std::string>& args);

}  // namespace trainer::cli
