#include <fmt/format.h>

#include <regex>

#include "base/text.h"
#include "cli/completion/definition.h"

namespace trainer::completion {
namespace {

// Splits the line itself, because bash splits COMP_WORDS at "=", which key=value contains.
constexpr const char* kFunction = R"bash(
_trainer_complete() {
  local line=${COMP_LINE:0:COMP_POINT}
  local -a words
  read -ra words <<<"$line"
  local current=
  [[ $line == *[[:space:]] ]] || { current=${words[-1]}; unset 'words[-1]'; }
  local previous=${words[-1]} command= word
  for word in "${words[@]:1}"; do
    if [[ $command == launch ]]; then
      :
    elif [[ -n ${_trainer_options[$command $word]+set} && -n $command ]]; then
      command+=" $word"
    elif [[ -z $command && -n ${_trainer_options[$word]+set} ]]; then
      command=$word
    fi
  done
  if [[ -z $command && ${#words[@]} -gt 1 ]]; then command=train; fi
  # The arguments of `launch` end with a complete command line, usually of `train`.
  local other=
  [[ $command == launch ]] && other=train
  local help=
  [[ ${words[1]} == help ]] && help=1
  local prefix= candidates= files=
  if [[ $current == --*=* ]]; then
    previous=${current%%=*} prefix=${current%%=*}= current=${current#*=}
  fi
  local argument="${command:-train} $previous"
  [[ -n $other && -z ${_trainer_values[$argument]+set} ]] && argument="$other $previous"
  if [[ -n $help ]]; then
    candidates=$_trainer_commands
  elif [[ -n ${_trainer_values[$argument]+set} ]]; then
    candidates=${_trainer_values[$argument]} files=${_trainer_files[$argument]}
  elif [[ $current == -* ]]; then
    candidates="${_trainer_options[${command:-train}]} ${other:+${_trainer_options[$other]}}"
  elif [[ $current == *=* && -n ${_trainer_takes_keys[${other:-${command:-train}}]} ]]; then
    local key=${current%%=*}
    prefix=$key= current=${current#*=} candidates=${_trainer_key_values[$key]} files=${_trainer_key_files[$key]}
  elif [[ -z $command ]]; then
    candidates="help $_trainer_commands"
  else
    candidates="${_trainer_subcommands[$command]} ${_trainer_values[$command]}"
    files=${_trainer_files[$command]}
    [[ -n ${_trainer_takes_keys[${other:-$command}]} ]] && candidates+=" $_trainer_keys"
  fi
  COMPREPLY=()
  [[ -n $candidates ]] && mapfile -t COMPREPLY < <(compgen -W "$candidates" -- "$current")
  if [[ -n $files ]]; then
    local -a names
    mapfile -t names < <(compgen -f -- "$current")
    COMPREPLY+=("${names[@]}")
    compopt -o filenames 2>/dev/null
  fi
  # If "=" is in COMP_WORDBREAKS, bash keeps the text before it; otherwise each candidate has to repeat that text.
  if [[ -n $prefix && $COMP_WORDBREAKS != *=* ]]; then COMPREPLY=("${COMPREPLY[@]/#/$prefix}"); fi
  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -F _trainer_complete trainer
)bash";

class Table {
 public:
  explicit Table(const std::string& name) : text_("declare -gA " + name + "=(\n") {}
  void add(const std::string& key, const std::string& value) { text_ += fmt::format("  [{}]={}\n", quoted(key), quoted(value)); }
  std::string text() const { return text_ + ")\n"; }

 private:
  std::string text_;
};

}  // namespace

std::string bash_completion(const Program& program) {
  std::vector<std::string> names;
  for (const auto* command : top_commands(program)) names.push_back(command->name);
  Table options("_trainer_options"), subcommands("_trainer_subcommands"), values("_trainer_values"), files("_trainer_files"),
      takes_keys("_trainer_takes_keys"), key_values("_trainer_key_values"), key_files("_trainer_key_files");
  for (const auto& command : program.commands) {
    std::vector<std::string> flags;
    for (const auto& argument : command.arguments) {
      flags.insert(flags.end(), argument.names.begin(), argument.names.end());
      const auto add = [&](const std::string& key) {
        values.add(key, join(argument.values, " "));
        if (argument.takes_path) files.add(key, "1");
      };
      if (argument.placeholder.empty()) continue;
      if (argument.names.empty() && argument.placeholder != "key=value") add(command.name);
      for (const auto& name : argument.names) add(command.name + " " + name);
    }
    options.add(command.name, join(flags, " "));
    if (!command.subcommands.empty()) subcommands.add(command.name, join(command.subcommands, " "));
    if (command.takes_keys) takes_keys.add(command.name, "1");
  }
  std::vector<std::string> keys;
  for (const auto& key : program.keys) {
    keys.push_back(key.path + "=");
    if (!key.values.empty()) key_values.add(key.path, join(key.values, " "));
    if (key.is_path) key_files.add(key.path, "1");
  }
  std::string text = "# Completion of `trainer` in bash. Generated during the build.\n\n";
  text += "_trainer_commands=" + quoted(join(names, " ")) + "\n_trainer_keys=" + quoted(join(keys, " ")) + "\n";
  for (const auto& table : {options, subcommands, values, files, takes_keys, key_values, key_files}) text += table.text();
  return text + kFunction;
}

namespace {

// In single quotes, fish interprets only the backslash and the single quote.
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
      "# Completion of `trainer` in fish. Generated during the build.\n\n"
      "complete -c trainer -f\n\n"
      "# Without the name of a command, complete the arguments of train.\n"
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

namespace {

// _describe and _arguments of zsh interpret ":" and brackets.
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
  // The arguments of `launch` end with a complete command line, usually of `train`.
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
  std::string text = "#compdef trainer\n# Completion of `trainer` in zsh. Generated during the build.\n\n" + key_function(program);
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
