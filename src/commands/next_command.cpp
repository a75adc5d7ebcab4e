#include "commands/next_command.h"

#include <fmt/format.h>

namespace trainer::commands {

std::string quoted(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string training_command(const config::ExperimentSource& source, int world_size, const std::vector<std::string>& more) {
  auto text = world_size == 1 ? std::string("trainer") : fmt::format("trainer launch --nproc-per-node {}", world_size);
  text += " --config " + quoted(source.file.string());
  for (const auto* overrides : {&source.overrides, &more}) {
    for (const auto& override_text : *overrides) text += " " + quoted(override_text);
  }
  return text;
}

}  // namespace trainer::commands
