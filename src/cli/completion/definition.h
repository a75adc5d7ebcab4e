#pragma once
// The program's command-line interface as data, read from the definitions of its commands and the key tables.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "config/reference.h"

namespace trainer::completion {

struct Argument {
  std::vector<std::string> names;   // "--config"; empty: a positional argument
  std::string placeholder;          // "FILE"; empty: a flag
  std::vector<std::string> values;  // the fixed choices
  bool takes_path = false;          // a file or a folder
  bool is_required = false;
  bool may_repeat = false;
  std::string doc;
};

struct Command {
  std::string name;  // "launch", "data pack"; empty for the program itself
  std::string doc;   // one line
  std::string description;
  std::vector<Argument> arguments;
  std::vector<std::string> subcommands;  // the last words of their names
  bool takes_keys = false;               // key=value
};

struct Program {
  std::string version;
  std::vector<Command> commands;  // each followed by its subcommands
  std::vector<config::SettableKey> keys;
};

// Returns the command and all its subcommands. `name`: the command's name; `doc`: its line in the program's help.
std::vector<Command> read_commands(const CLI::App& app, const std::string& name, const std::string& doc);

// Completion scripts. The shells complete an argument with its values and, where a path is possible, with file names.
std::string bash_completion(const Program& program);
std::string zsh_completion(const Program& program);
std::string fish_completion(const Program& program);

// Man pages in the language of man(7): for the program, and for a command with its subcommands.
std::string program_man_page(const Program& program);
std::string command_man_page(const Program& program, const Command& command);

// The commands without their subcommands.
std::vector<const Command*> top_commands(const Program& program);
// "'" + text + "'" for the shells, with the quotes in the text escaped.
std::string quoted(const std::string& text);

}  // namespace trainer::completion
