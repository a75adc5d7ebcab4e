#include <fmt/format.h>

#include "base/text.h"
#include "cli/completion/definition.h"

namespace trainer::completion {
namespace {

// COMP_WORDS is not used because bash splits words at "=", which keys contain.
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
  # What the launcher starts is a command line of its own.
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
  # What stands before "=" is already there, unless "=" is no break of words.
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
  std::string text = "# Completion of `trainer` in bash. Written while the program is built.\n\n";
  text += "_trainer_commands=" + quoted(join(names, " ")) + "\n_trainer_keys=" + quoted(join(keys, " ")) + "\n";
  for (const auto& table : {options, subcommands, values, files, takes_keys, key_values, key_files}) text += table.text();
  return text + kFunction;
}

}  // namespace trainer::completion
