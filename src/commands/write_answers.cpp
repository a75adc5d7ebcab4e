// Runs during the build: writes the source of cli::all_answers(), with the output of the commands.

#include <fmt/format.h>

#include <CLI/Error.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/standard_streams.h"
#include "base/text.h"
#include "commands/command.h"

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
  for (const auto& family : trainer::commands::family_names()) lines.push_back({"list", family});
  for (const auto& command : trainer::commands::all_commands()) {
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
    trainer::commands::run(args);
  } catch (const CLI::CallForHelp&) {
  }
  std::fclose(stdout);
  stdout = terminal;
  std::string printed(text, size);
  std::free(text);
  return printed;
}

}  // namespace

int main() {
  std::string source =
      "#include <array>\n\n#include \"cli/answers.h\"\n\nnamespace trainer::cli {\n\nstd::span<const Answer> all_answers() {\n";
  const auto lines = command_lines();
  source += fmt::format("  static constexpr std::array<Answer, {}> kAnswers = {{{{\n", lines.size());
  for (const auto& args : lines) {
    source += fmt::format("      {{\"{}\", R\"answer({})answer\"}},\n", trainer::join(args, " "), printed_by(args));
  }
  source += "  }};\n  return kAnswers;\n}\n\n}  // namespace trainer::cli\n";
  trainer::print_text(source);
  trainer::flush_standard_output();
}
