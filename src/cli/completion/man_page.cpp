#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <regex>

#include "base/text.h"
#include "cli/arguments.h"
#include "cli/completion/definition.h"

namespace trainer::completion {
namespace {

// Converts text to roff: escapes "\", "-" (read as a hyphen) and, at the beginning of a line, "." and "'"; text in backquotes becomes
// bold, and line breaks are kept.
std::string roff(const std::string& text) {
  auto result = std::regex_replace(text, std::regex(R"(\\)"), R"(\e)");
  result = std::regex_replace(result, std::regex("-"), R"(\-)");
  result = std::regex_replace(result, std::regex("`([^`]*)`"), R"(\fB$1\fR)");
  result = std::regex_replace(result, std::regex("(^|\n *)([.'])"), R"($1\&$2)");
  return std::regex_replace(result, std::regex("\n *"), "\n.br\n");
}

std::string upper_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string header(const Program& program, const std::string& name, const std::string& doc) {
  return fmt::format(".\\\" Generated during the build.\n.TH {} 1 \"\" \"trainer {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n",
                     roff(upper_case(name)), program.version, roff(name), roff(doc));
}

std::string synopsis(const Command& command) {
  std::string text = fmt::format(".B trainer {}\n", roff(command.name));
  bool has_options = false;
  for (const auto& argument : command.arguments) {
    if (argument.names.empty() || !argument.is_required) {
      has_options = has_options || !argument.names.empty();
      continue;
    }
    text += fmt::format("\\fB{}\\fR \\fI{}\\fR\n", roff(argument.names.back()), roff(argument.placeholder));
  }
  if (has_options) text += "[\\fIoptions\\fR]\n";
  for (const auto& argument : command.arguments) {
    if (!argument.names.empty()) continue;
    const auto name = fmt::format("\\fI{}\\fR{}", roff(argument.placeholder), argument.may_repeat ? " ..." : "");
    text += argument.is_required ? name + "\n" : "[" + name + "]\n";
  }
  if (!command.subcommands.empty()) text += "\\fIsubcommand\\fR [\\fIarguments\\fR]\n";
  return text;
}

std::string arguments(const Command& command) {
  std::string text;
  for (const auto& argument : command.arguments) {
    std::vector<std::string> names;
    for (const auto& name : argument.names) names.push_back("\\fB" + roff(name) + "\\fR");
    auto title = join(names, ", ");
    if (!argument.placeholder.empty()) title += fmt::format("{}\\fI{}\\fR", title.empty() ? "" : " ", roff(argument.placeholder));
    text += fmt::format(".TP\n{}\n{}\n", title, roff(argument.doc.empty() ? argument.placeholder : argument.doc));
    if (!argument.values.empty() && argument.placeholder.find('|') == std::string::npos) {
      text += fmt::format(".br\nOne of {}.\n", roff(join(argument.values, ", ")));
    }
  }
  return text;
}

std::string ending(const std::vector<std::string>& see_also) {
  std::string text =
      ".SH EXIT STATUS\n"
      "0 done, 1 failure while running, 2 command line or configuration, 3 data, 4 another rank, a connection between ranks, or a timeout, "
      "5 a checkpoint, 75 stopped on request.\n.SH SEE ALSO\n";
  for (size_t i = 0; i < see_also.size(); ++i) text += fmt::format(".BR {} (1){}\n", roff(see_also[i]), i + 1 < see_also.size() ? "," : "");
  return text;
}

}  // namespace

std::string program_man_page(const Program& program) {
  auto text = header(program, "trainer", "train image classifiers from a YAML experiment file");
  text +=
      ".SH SYNOPSIS\n.B trainer \\-\\-config\n\\fIFILE\\fR [\\fIkey=value\\fR ...]\n.br\n.B trainer\n\\fIcommand\\fR [\\fIarguments\\fR]\n"
      ".SH DESCRIPTION\nReads an experiment file and trains an image classifier with distributed data parallelism on LibTorch. Without the "
      "name of a command, the arguments are those of \\fBtrain\\fR.\n.SH COMMANDS\n";
  std::vector<std::string> pages;
  for (const auto* command : top_commands(program)) {
    text += fmt::format(".TP\n.B {}\n{}\n", roff(command->name), roff(command->doc));
    pages.push_back("trainer-" + command->name);
  }
  text += ".SH KEYS\nThe keys that \\fIkey=value\\fR can set; \\fBtrainer config reference\\fR shows types, defaults and units.\n";
  for (const auto& key : program.keys) text += fmt::format(".TP\n.B {}\n{}\n", roff(key.path), roff(key.doc.empty() ? key.path : key.doc));
  return text + ending(pages);
}

std::string command_man_page(const Program& program, const Command& command) {
  auto text = header(program, "trainer-" + command.name, command.doc) + ".SH SYNOPSIS\n" + synopsis(command);
  std::vector<const Command*> subcommands;
  for (const auto& other : program.commands) {
    if (other.name.starts_with(command.name + " ")) subcommands.push_back(&other);
  }
  text += fmt::format(".SH DESCRIPTION\n{}\n.SH OPTIONS\n{}", roff(command.description), arguments(command));
  for (const auto* subcommand : subcommands) {
    text +=
        fmt::format(".SH {}\n{}.PP\n{}\n{}", roff(subcommand->name), synopsis(*subcommand), roff(subcommand->doc), arguments(*subcommand));
  }
  text += fmt::format(".SH EXAMPLES\n{}\n", roff(std::string(cli::examples_of(command.name))));
  return text + ending({"trainer"});
}

}  // namespace trainer::completion
