// Prints the output that was generated during the build (cli/answers.h), and runs the commands that need no LibTorch. For every other
// command line, loads the library with the other commands.

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/program.h"
#include "base/signal.h"
#include "base/standard_streams.h"
#include "cli/answers.h"
#include "cli/light_commands.h"
#include "cli/output.h"
#include "launch/world/host_resources.h"

namespace {

// LibTorch's OpenMP threads wait by spinning, by default for milliseconds. If another process uses one of the cores, the spinning threads
// keep the thread that they wait for from running. The OpenMP library reads the spin count when it is loaded. docs/performance.md has the
// measurements behind the value.
void limit_busy_waiting() {
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) setenv("GOMP_SPINCOUNT", "10000", /*overwrite=*/0);
}

// Loads the library with everything that needs LibTorch, which is found by the run path of the executable and stays loaded, and returns its
// function for a command line (commands/library.cpp).
auto load_training_library() {
  trainer::world::check_address_space();
  // RTLD_GLOBAL makes the symbols global, as linking would; LibTorch's libraries need global symbols.
  void* library = dlopen(TRAINER_LIBRARY, RTLD_LAZY | RTLD_GLOBAL);
  void* entry = library == nullptr ? nullptr : dlsym(library, "trainer_run_command");
  if (entry != nullptr) return reinterpret_cast<int (*)(const std::vector<std::string>& args)>(entry);
  const std::string reason = dlerror();
  // Without /proc, the libraries beside the program are not found.
  trainer::own_program();
  throw trainer::Error(fmt::format("the training library of this program cannot be loaded: {}; build or install it again", reason));
}

}  // namespace

int main(int argc, char** argv) {
  trainer::repair_inherited_state();
  // The commands install their signal handlers only after LibTorch is loaded, which takes a large part of a second. Until then, stop
  // requests have to wait.
  trainer::block_stop_signals();
  const std::vector<std::string> args(argv + 1, argv + argc);
  // Commands that do not need LibTorch.
  static const std::map<std::string, trainer::ExitCode (*)(const std::vector<std::string>&)> kCommands = {
      {"launch", trainer::cli::launch}, {"runs", trainer::cli::runs}, {"compare", trainer::cli::compare}};
  if (const auto* text = trainer::cli::find_answer(trainer::cli::all_answers(), args)) {
    return trainer::cli::run_program([&] {
      trainer::print_text(*text);
      return trainer::ExitCode::kDone;
    });
  }
  if (!args.empty() && args.front() == "__complete") {
    trainer::print_text(trainer::cli::completions(trainer::cli::all_words(), {args.begin() + 1, args.end()}));
    return 0;
  }
  return trainer::cli::run_program([&] {
    trainer::check_working_folder();
    const auto command = args.empty() ? kCommands.end() : kCommands.find(args.front());
    if (command != kCommands.end()) {
      trainer::exit_on_stop_signals();
      return command->second({args.begin() + 1, args.end()});
    }
    limit_busy_waiting();
    return static_cast<trainer::ExitCode>(load_training_library()(args));
  });
}
