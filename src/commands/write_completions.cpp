// Runs during the build: writes the completions for bash, zsh and fish and the man pages to the given folder.

#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "cli/arguments.h"
#include "cli/completion/definition.h"
#include "commands/command.h"
#include "run/session/registries.h"
#include "run/session/version.h"

int main(int argc, char** argv) {
  using namespace trainer;
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
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
