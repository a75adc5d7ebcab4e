#include "cli/answers.h"

#include <algorithm>

#include "base/text.h"

namespace trainer::cli {

const std::string_view* find_answer(std::span<const Answer> answers, const std::vector<std::string>& args) {
  const auto found = std::ranges::find(answers, join(args, " "), &Answer::command_line);
  return found == answers.end() ? nullptr : &found->text;
}

}  // namespace trainer::cli
