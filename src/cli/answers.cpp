#include "cli/answers.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>

#include "base/text.h"

namespace trainer::cli {

const std::string_view* find_answer(std::span<const Answer> answers, const std::vector<std::string>& args) {
  const auto found = std::ranges::find(answers, join(args, " "), &Answer::command_line);
  return found == answers.end() ? nullptr : &found->text;
}

namespace {

// A placeholder is such as "FILE" or "auto|none|FILE|DIR"; CLI::IsMember appends ":{bar,plain,none}", and other checks append " in [1 -
// 5]".
std::string values_of(const CLI::Option& option) {
  const auto type = option.get_type_name();
  const auto placeholder = type.substr(0, std::min(type.find(':'), type.find(" in ")));
  if (placeholder == "key=value") return "@keys\n";
  const auto begin = type.find('{');
  auto choices = placeholder + '|';
  if (begin != std::string::npos) choices += type.substr(begin + 1, type.find('}', begin) - begin - 1);
  std::ranges::replace(choices, ',', '|');
  std::string text;
  bool takes_files = false;
  std::istringstream parts(choices);
  for (std::string part; std::getline(parts, part, '|');) {
    const auto is_of_word = [](unsigned char c) { return std::islower(c) != 0 || c == '_' || c == '-'; };
    if (!part.empty() && std::ranges::all_of(part, is_of_word)) text += part + '\n';
    takes_files = takes_files || std::ranges::any_of(std::array{"FILE", "DIR", "IMAGE", "FOLDER", "PATH", "RUN", "CHECKPOINT"},
                                                     [&](const char* name) { return part.starts_with(name); });
  }
  return text + (takes_files ? "@files\n" : "");
}

}  // namespace

std::vector<std::pair<std::string, std::string>> words_of(const CLI::App& app, const std::string& name) {
  std::vector<std::pair<std::string, std::string>> contexts = {{name, ""}};
  for (const auto* option : app.get_options()) {
    // Options without a group are internal.
    if (option->get_group().empty()) continue;
    std::vector<std::string> names;
    for (const auto& short_name : option->get_snames()) names.push_back("-" + short_name);
    for (const auto& long_name : option->get_lnames()) {
      // Names with underscores are torchrun's spelling of the same options.
      if (long_name.find('_') == std::string::npos) names.push_back("--" + long_name);
    }
    if (names.empty()) contexts.front().second += values_of(*option);
    for (const auto& each : names) {
      contexts.front().second += each + '\t' + option->get_description() + '\n';
      if (option->get_items_expected_max() > 0) contexts.emplace_back(name + " " + each, values_of(*option));
    }
  }
  for (const auto* subcommand : app.get_subcommands([](const CLI::App*) { return true; })) {
    contexts.front().second += subcommand->get_name() + '\t' + subcommand->get_description() + '\n';
    std::ranges::move(words_of(*subcommand, name + " " + subcommand->get_name()), std::back_inserter(contexts));
  }
  return contexts;
}

std::string completions(std::span<const Answer> table, const std::vector<std::string>& words) {
  auto current = words.empty() ? "" : words.back();
  std::string command;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const auto longer = command.empty() ? words[i] : command + " " + words[i];
    // The arguments of `launch` are those of a complete command line, usually of `train`.
    if (command != "launch" && !words[i].starts_with('-') && find_answer(table, {longer}) != nullptr) command = longer;
  }
  const bool has_arguments = words.size() > 1 || current.starts_with('-');
  if (command.empty() && has_arguments && words.front() != "help") command = "train";
  std::string option = words.size() > 1 ? words[words.size() - 2] : "";
  const auto equals = current.find('=');
  if (equals != std::string::npos) {
    option = current.substr(0, equals);
    current.erase(0, equals + 1);
  }

  std::string text;
  bool takes_value = equals != std::string::npos;
  const auto add = [&](const std::string& context) {
    const auto* found = find_answer(table, {context});
    if (found != nullptr) text += *found;
    return found != nullptr;
  };
  std::vector<std::string> commands = {command};
  if (command == "launch") commands.emplace_back("train");
  for (const auto& each : commands) takes_value = (option.starts_with('-') && add(each + " " + option)) || takes_value;
  if (equals != std::string::npos) add(option + "=");
  if (!takes_value) {
    for (const auto& each : commands) add(each);
  }
  if (text.find("@keys\n") != std::string::npos) add("@keys");

  std::string fitting;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool fits = line.starts_with(current) && line.starts_with('-') == current.starts_with('-');
    if (line == "@files" ? !current.starts_with('-') : fits && line != "@keys") fitting += line + '\n';
  }
  return fitting;
}

}  // namespace trainer::cli
