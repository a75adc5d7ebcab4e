#include "cli/completion/definition.h"

#include <algorithm>
#include <cctype>
#include <regex>
#include <sstream>

namespace trainer::completion {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::istringstream stream(text);
  std::vector<std::string> parts;
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool is_word(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::islower(c) != 0 || c == '_' || c == '-'; });
}

Argument read_argument(const CLI::Option& option) {
  Argument argument;
  for (const auto& name : option.get_snames()) argument.names.push_back("-" + name);
  for (const auto& name : option.get_lnames()) {
    // Names with underscores are torchrun's spelling of the same options.
    if (name.find('_') == std::string::npos) argument.names.push_back("--" + name);
  }
  argument.doc = option.get_description();
  argument.is_required = option.get_required();
  argument.may_repeat = option.get_items_expected_max() > 1;
  if (option.get_items_expected_max() == 0) return argument;
  // Such as "FILE" or "auto|none|FILE|DIR"; CLI::IsMember appends ":{bar,plain,none}", and other checks append " in [1 - 5]".
  const auto type = option.get_type_name();
  const auto begin = type.find('{');
  argument.placeholder = type.substr(0, std::min(type.find(':'), type.find(" in ")));
  if (argument.names.empty()) argument.placeholder = argument.placeholder == "TEXT" ? option.get_name() : argument.placeholder;
  if (begin != std::string::npos) argument.values = split(type.substr(begin + 1, type.find('}', begin) - begin - 1), ',');
  for (const auto& part : split(argument.placeholder, '|')) {
    if (is_word(part) && part != option.get_name() && part.find('=') == std::string::npos) argument.values.push_back(part);
    if (part.starts_with("FILE") || part.starts_with("DIR") || part.starts_with("IMAGE") || part.starts_with("FOLDER") ||
        part.starts_with("PATH") || part.starts_with("RUN") || part.starts_with("CHECKPOINT")) {
      argument.takes_path = true;
    }
  }
  if (argument.placeholder.empty()) argument.placeholder = "VALUE";
  return argument;
}

}  // namespace

std::vector<Command> read_commands(const CLI::App& app, const std::string& name, const std::string& doc) {
  Command command;
  command.name = name;
  command.doc = doc;
  command.description = app.get_description();
  for (const auto* option : app.get_options()) {
    // Options without a group are internal.
    if (option->get_group().empty()) continue;
    auto argument = read_argument(*option);
    if (argument.names.empty() && argument.placeholder == "key=value") command.takes_keys = true;
    command.arguments.push_back(std::move(argument));
  }
  std::vector<Command> commands;
  for (const auto* subcommand : app.get_subcommands([](const CLI::App*) { return true; })) {
    command.subcommands.push_back(subcommand->get_name());
    auto inner = read_commands(*subcommand, name + " " + subcommand->get_name(), subcommand->get_description());
    commands.insert(commands.end(), inner.begin(), inner.end());
  }
  commands.insert(commands.begin(), std::move(command));
  return commands;
}

std::vector<const Command*> top_commands(const Program& program) {
  std::vector<const Command*> result;
  for (const auto& command : program.commands) {
    if (command.name.find(' ') == std::string::npos) result.push_back(&command);
  }
  return result;
}

std::string quoted(const std::string& text) { return "'" + std::regex_replace(text, std::regex("'"), "'\\''") + "'"; }

}  // namespace trainer::completion
