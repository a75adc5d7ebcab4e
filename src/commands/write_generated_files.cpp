// Runs during the build. Writes the source of cli::all_answers(), with the output of commands, and of cli::all_words(), for completions, to
// the file in the first argument, and the man pages to the folder in the second argument.

#include <fmt/format.h>

#include <CLI/Error.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "cli/answers.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "config/reference.h"
#include "run/recipe/registries.h"
#include "run/version.h"

namespace trainer {
namespace {

std::vector<std::vector<std::string>> command_lines() {
  std::vector<std::vector<std::string>> lines = {
      {"--help"},
      {"-h"},
      {"help"},
      {"--version"},
      {"--licenses"},
      {"list"},
      {"config", "reference"},
      {"config", "reference", "--format", "text"},
      {"config", "reference", "--format", "markdown"},
  };
  for (const auto& family : commands::family_names()) lines.push_back({"list", family});
  for (const auto& command : commands::all_commands()) {
    lines.push_back({command.name, "--help"});
    lines.push_back({command.name, "-h"});
    lines.push_back({"help", command.name});
  }
  return lines;
}

std::string printed_by(const std::vector<std::string>& args) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const terminal = stdout;
  stdout = open_memstream(&text, &size);
  try {
    commands::run(args);
  } catch (const CLI::CallForHelp&) {
  }
  std::fclose(stdout);
  stdout = terminal;
  std::string printed(text, size);
  std::free(text);
  return printed;
}

using Texts = std::vector<std::pair<std::string, std::string>>;

Texts answers() {
  Texts found;
  for (const auto& args : command_lines()) found.emplace_back(join(args, " "), printed_by(args));
  return found;
}

Texts words() {
  Texts contexts = {{"", "help\tshow the help of a command\n"}, {"@keys", ""}};
  for (const auto& command : commands::all_commands()) {
    contexts[0].second += fmt::format("{}\t{}\n", command.name, command.doc);
    cli::visit_definition([&] { command.run({"--help"}); },
                          [&](const CLI::App& app) {
                            for (auto& context : cli::words_of(app, command.name)) contexts.push_back(std::move(context));
                          });
  }
  for (const auto& key : config::settable_keys(recipe::all_registries())) {
    contexts[1].second += fmt::format("{}=\t{}\n", key.path, key.doc);
    contexts.emplace_back(key.path + "=", (key.values.empty() ? "" : join(key.values, "\n") + "\n") + (key.is_path ? "@files\n" : ""));
  }
  return contexts;
}

std::string source_of(const char* function, const Texts& texts) {
  auto source =
      fmt::format("std::span<const Answer> {}() {{\n  static constexpr std::array<Answer, {}> kTexts = {{{{\n", function, texts.size());
  for (const auto& [key, text] : texts) source += fmt::format("      {{\"{}\", R\"answer({})answer\"}},\n", key, text);
  return source + "  }};\n  return kTexts;\n}\n\n";
}

// A page in the language of man(7) with the help of a command, or for an empty name that of the program. Escapes "\", "-" (read as a
// hyphen) and, at the beginning of a line, "." and "'".
std::string man_page(const std::string& command, const std::string& doc) {
  const auto name = command.empty() ? "trainer" : "trainer-" + command;
  auto help = printed_by(command.empty() ? std::vector<std::string>{"--help"} : std::vector{command, std::string("--help")});
  help = std::regex_replace(help, std::regex(R"(\\)"), R"(\e)");
  help = std::regex_replace(help, std::regex("-"), R"(\-)");
  help = std::regex_replace(help, std::regex("(^|\n)([.'])"), R"($1\&$2)");
  return fmt::format(
      ".\\\" Generated during the build.\n.TH {} 1 \"\" \"trainer {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n.SH "
      "DESCRIPTION\n.nf\n{}.fi\n"
      ".SH EXIT STATUS\n"
      "0 done, 1 failure while running, 2 command line or configuration, 3 data, 4 another rank, a connection between ranks, or a timeout, "
      "5 a checkpoint, 75 stopped on request.\n",
      name, run::trainer_version(), name, doc, help);
}

void write_man_pages(const std::filesystem::path& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  write_file_atomically(folder / "trainer.1", man_page("", "train image classifiers from a YAML experiment file"));
  for (const auto& command : commands::all_commands()) {
    write_file_atomically(folder / fmt::format("trainer-{}.1", command.name), man_page(command.name, command.doc));
  }
}

}  // namespace
}  // namespace trainer

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  trainer::write_file_atomically(argv[1], "#include <array>\n\n#include \"cli/answers.h\"\n\nnamespace trainer::cli {\n\n" +
                                              trainer::source_of("all_answers", trainer::answers()) +
                                              trainer::source_of("all_words", trainer::words()) + "}  // namespace trainer::cli\n");
  trainer::write_man_pages(argv[2]);
}
