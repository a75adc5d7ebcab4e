#include <fmt/format.h>

#include <regex>

#include "base/text.h"
#include "cli/completion/definition.h"

namespace trainer::completion {
namespace {

// In fish's single quotes only these two are special.
std::string fish_quoted(const std::string& text) { return "'" + std::regex_replace(text, std::regex(R"([\\'])"), R"(\$&)") + "'"; }

std::string condition(const Command& command) {
  const auto space = command.name.find(' ');
  if (space != std::string::npos) {
    return fmt::format("__fish_seen_subcommand_from {}; and __fish_seen_subcommand_from {}", command.name.substr(0, space),
                       command.name.substr(space + 1));
  }
  if (command.name == "train") return "__trainer_trains";
  return "__fish_seen_subcommand_from " + command.name;
}

std::string line(const std::string& condition, const std::string& rest) {
  return fmt::format("complete -c trainer -n {} {}\n", fish_quoted(condition), rest);
}

std::string complete_argument(const Command& command, const Argument& argument) {
  std::string rest;
  for (const auto& name : argument.names) rest += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (argument.names.empty() && argument.placeholder == "key=value") {
    return line(condition(command), "-f -a '(__trainer_keys)'");
  }
  if (!argument.values.empty()) rest += " -a " + fish_quoted(join(argument.values, " "));
  if (!argument.names.empty() && !argument.placeholder.empty()) rest += argument.takes_path ? " -r" : " -x";
  if (argument.takes_path) rest += " -F";
  if (rest.empty()) return "";
  return line(condition(command), fmt::format("{} -d {}", rest.substr(1), fish_quoted(argument.doc)));
}

}  // namespace

std::string fish_completion(const Program& program) {
  std::vector<std::string> names;
  for (const auto* command : top_commands(program)) names.push_back(command->name);
  std::string text =
      "# Completion of `trainer` in fish. Written while the program is built.\n\n"
      "complete -c trainer -f\n\n"
      "# Without the name of a command, the arguments are those of train.\n"
      "function __trainer_trains\n"
      "  set -l words (commandline -opc)\n"
      "  test (count $words) -gt 1; or string match -q -- '-*' (commandline -ct); or return 1\n"
      "  contains -- \"$words[2]\" train launch; or not contains -- \"$words[2]\" help " +
      join(names, " ") +
      "\nend\n\n"
      "function __trainer_keys\n"
      "  set -l word (commandline -ct)\n"
      "  if string match -q '*=*' -- $word\n    switch (string split -m 1 = -- $word)[1]\n";
  std::vector<std::string> keys;
  for (const auto& key : program.keys) {
    keys.push_back(fmt::format("{}={}", key.path, key.doc.empty() ? "" : "\\t" + key.doc));
    if (!key.values.empty())
      text += fmt::format("      case {}\n        printf '{}=%s\\n' {}\n", key.path, key.path, join(key.values, " "));
    if (key.is_path)
      text += fmt::format("      case {}\n        __fish_complete_path (string split -m 1 = -- $word)[2] | string replace -r '^' '{}='\n",
                          key.path, key.path);
  }
  text += "    end\n  else\n    printf '%b\\n'";
  for (const auto& key : keys) text += " \\\n      " + fish_quoted(key);
  text += "\n  end\nend\n\n";
  for (const auto* command : top_commands(program)) {
    text += fmt::format("complete -c trainer -n __fish_use_subcommand -a {} -d {}\n", command->name, fish_quoted(command->doc));
  }
  for (const auto& command : program.commands) {
    for (const auto& subcommand : command.subcommands) {
      text += line(fmt::format("__fish_seen_subcommand_from {}; and not __fish_seen_subcommand_from {}", command.name,
                               join(command.subcommands, " ")),
                   "-a " + subcommand);
    }
    for (const auto& argument : command.arguments) text += complete_argument(command, argument);
  }
  return text;
}

}  // namespace trainer::completion
