#pragma once
// The program's command line as data, read from the definitions of its commands and the key tables.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "config/reference.h"

namespace trainer::completion {

struct Argument {
  std::vector<std::string> names;   // "--config"; empty: a positional argument
  std::string placeholder;          // "FILE"; empty: a flag
  std::vector<std::string> values;  // fixed ones
  bool takes_path = false;          // of a file or folder
  bool is_required = false;
  bool may_repeat = false;
  std::string doc;
};

struct Command {
  std::string name;  // "launch", "data pack"; of the program itself: empty
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

// `name`: the command's; `doc`: its line in the program's help. With all subcommands.
std::vector<Command> read_commands(const CLI::App& app, const std::string& name, const std::string& doc);

// The values, and file names where a path is possible, that complete an argument are for the shells to show.
std::string bash_completion(const Program& program);
std::string zsh_completion(const Program& program);
std::string fish_completion(const Program& program);

// In the language of man(7). The first function: of the program; the other: of one command with its subcommands.
std::string program_man_page(const Program& program);
std::string command_man_page(const Program& program, const Command& command);

// The commands of the first level.
std::vector<const Command*> top_commands(const Program& program);
// "'" + text + "'" for the shells, with its quotes escaped.
std::string quoted(const std::string& text);

}  // namespace trainer::completion
