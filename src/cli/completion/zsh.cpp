#include <fmt/format.h>

#include <regex>

#include "base/text.h"
#include "cli/completion/definition.h"

namespace trainer::completion {
namespace {

// For _describe and _arguments, which read ":" and brackets.
std::string escaped(const std::string& text) { return std::regex_replace(text, std::regex(R"([:\[\]\\])"), R"(\$&)"); }

std::string action(const Argument& argument) {
  if (argument.placeholder == "key=value") return "_trainer_keys";
  const auto values = argument.values.empty() ? "" : "compadd -- " + join(argument.values, " ");
  if (argument.takes_path && !values.empty()) return "{ " + values + "; _files }";
  if (argument.takes_path) return "_files";
  return values.empty() ? " " : "(" + join(argument.values, " ") + ")";
}

std::string specification(const Argument& argument) {
  const auto value = fmt::format(":{}:{}", escaped(argument.placeholder), action(argument));
  if (argument.names.empty()) return quoted((argument.may_repeat ? "*" : "") + value);
  std::vector<std::string> all;
  for (const auto& name : argument.names) {
    const bool has_value = !argument.placeholder.empty();
    all.push_back(quoted(fmt::format("{}{}{}[{}]{}", argument.may_repeat ? "*" : "", name, has_value && name.starts_with("--") ? "=" : "",
                                     escaped(argument.doc), has_value ? value : "")));
  }
  return join(all, " \\\n    ");
}

std::string function_name(const std::string& command) { return "_trainer_" + std::regex_replace(command, std::regex("[ -]"), "_"); }

std::string list(const std::string& name, const std::vector<std::pair<std::string, std::string>>& entries) {
  auto text = "  local -a " + name + "=(\n";
  for (const auto& [word, doc] : entries) text += fmt::format("    {}\n", quoted(escaped(word) + ":" + escaped(doc)));
  return text + "  )\n";
}

std::string function(const Program& program, const Command& command) {
  auto text = function_name(command.name) + "() {\n";
  if (!command.subcommands.empty()) {
    std::vector<std::pair<std::string, std::string>> entries;
    for (const auto& other : program.commands) {
      const auto space = other.name.rfind(' ');
      if (space != std::string::npos && other.name.substr(0, space) == command.name)
        entries.emplace_back(other.name.substr(space + 1), other.doc);
    }
    text += list("subcommands", entries);
    text += fmt::format(
        "  if (( CURRENT == 2 )); then\n    _describe subcommand subcommands\n  else\n    local subcommand=$words[2]\n    shift words\n"
        "    (( CURRENT-- ))\n    (( $+functions[{0}_${{subcommand//-/_}}] )) && {0}_${{subcommand//-/_}}\n  fi\n}}\n\n",
        function_name(command.name));
    return text;
  }
  text += "  _arguments -s";
  for (const auto& argument : command.arguments) text += " \\\n    " + specification(argument);
  // What the launcher starts is a command line of its own.
  if (command.name == "launch") text += " \\\n    '*:: :_trainer_train'";
  return text + "\n}\n\n";
}

std::string key_function(const Program& program) {
  std::string text =
      "_trainer_keys() {\n  if [[ $PREFIX == *=* ]]; then\n    local key=${PREFIX%%=*}\n    compset -P '*='\n    case $key in\n";
  std::vector<std::string> keys;
  for (const auto& key : program.keys) {
    keys.push_back(key.path);
    if (!key.values.empty()) text += fmt::format("      {}) compadd -- {} ;;\n", key.path, join(key.values, " "));
    if (key.is_path) text += fmt::format("      {}) _files ;;\n", key.path);
  }
  return text + "    esac\n  else\n    compadd -S= -- " + join(keys, " ") + "\n  fi\n}\n\n";
}

}  // namespace

std::string zsh_completion(const Program& program) {
  std::string text = "#compdef trainer\n# Completion of `trainer` in zsh. Written while the program is built.\n\n" + key_function(program);
  std::vector<std::pair<std::string, std::string>> entries;
  for (const auto& command : program.commands) text += function(program, command);
  for (const auto* command : top_commands(program)) entries.emplace_back(command->name, command->doc);
  text += "_trainer() {\n" + list("commands", entries);
  text +=
      "  local command=$words[2]\n"
      "  if (( CURRENT == 2 )) && [[ $PREFIX != -* ]]; then\n    _describe command commands\n"
      "  elif (( $+functions[_trainer_${command//-/_}] )); then\n    shift words\n    (( CURRENT-- ))\n    _trainer_${command//-/_}\n"
      "  elif [[ $command == help ]]; then\n    _describe command commands\n"
      "  else\n    _trainer_train\n  fi\n}\n\n_trainer \"$@\"\n";
  return text;
}

}  // namespace trainer::completion
