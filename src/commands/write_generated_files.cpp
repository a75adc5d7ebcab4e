// Runs during the build. Writes the source of cli::all_answers(), with the output of commands, to the file in the first argument, and the
// completions for bash, zsh and fish and the man pages to the folder in the second argument.

#include <fmt/format.h>

#include <CLI/Error.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/completion/definition.h"
#include "commands/command.h"
#include "run/session/registries.h"
#include "run/session/version.h"

namespace trainer {
namespace {

std::vector<std::vector<std::string>> command_lines() {
  std::vector<std::vector<std::string>> lines = {
      {"--help"},
      {"-h"},
      {"help"},
      {"--version"},
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

void write_answers(const std::filesystem::path& file) {
  std::string source =
      "#include <array>\n\n#include \"cli/answers.h\"\n\nnamespace trainer::cli {\n\nstd::span<const Answer> all_answers() {\n";
  const auto lines = command_lines();
  source += fmt::format("  static constexpr std::array<Answer, {}> kAnswers = {{{{\n", lines.size());
  for (const auto& args : lines) {
    source += fmt::format("      {{\"{}\", R\"answer({})answer\"}},\n", join(args, " "), printed_by(args));
  }
  source += "  }};\n  return kAnswers;\n}\n\n}  // namespace trainer::cli\n";
  write_file_atomically(file, source);
}

void write_completions(const std::filesystem::path& folder) {
  completion::Program program{
      .version = session::trainer_version(), .commands = {}, .keys = config::settable_keys(session::all_registries())};
  for (const auto& command : commands::all_commands()) {
    cli::visit_definition([&] { command.run({"--help"}); },
                          [&](const CLI::App& app) {
                            const auto read = completion::read_commands(app, command.name, command.doc);
                            program.commands.insert(program.commands.end(), read.begin(), read.end());
                          });
  }
  const auto completions = folder / "completions";
  const auto man = folder / "man1";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(completions);
  std::filesystem::create_directories(man);
  write_file_atomically(completions / "trainer", completion::bash_completion(program));
  write_file_atomically(completions / "_trainer", completion::zsh_completion(program));
  write_file_atomically(completions / "trainer.fish", completion::fish_completion(program));
  write_file_atomically(man / "trainer.1", completion::program_man_page(program));
  for (const auto* command : completion::top_commands(program)) {
    write_file_atomically(man / fmt::format("trainer-{}.1", command->name), completion::command_man_page(program, *command));
  }
}

}  // namespace
}  // namespace trainer

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  trainer::write_answers(argv[1]);
  trainer::write_completions(argv[2]);
}
