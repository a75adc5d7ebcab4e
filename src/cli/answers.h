#pragma once
// Texts that commands/write_generated_files.cpp writes during the build, so that these command lines need not load LibTorch, which takes a
// large part of a second.

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace trainer::cli {

struct Answer {
  std::string_view command_line;  // the arguments, separated by spaces
  std::string_view text;
};

// The output that depends only on the build, such as that of `trainer --help` and `trainer list models`.
std::span<const Answer> all_answers();

// The text of the answer for these arguments; null if there is none.
const std::string_view* find_answer(std::span<const Answer> answers, const std::vector<std::string>& args);

// Completion of command lines: the scripts of the shells (scripts/completions) run `trainer __complete WORD...`.

// What can follow in each context, written during the build: "" (the commands), a command ("eval", "data pack"), an option with a value
// ("train --progress"), "@keys" (the keys of the experiment file) and one of these ("runtime.device="). Each line of the text is a word
// and, after a tab, its meaning. The line "@files" stands for the names of files, and "@keys" for the lines of that context.
std::span<const Answer> all_words();

// The contexts of the command with this name, and their texts.
std::vector<std::pair<std::string, std::string>> words_of(const CLI::App& app, const std::string& name);

// The lines with the words that can stand in place of the last one of `words`, which may be empty or the beginning of a word. After
// "KEY=" or "--option=" they lack this text.
std::string completions(std::span<const Answer> table, const std::vector<std::string>& words);

}  // namespace trainer::cli
