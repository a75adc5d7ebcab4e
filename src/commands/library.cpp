// The entry points of the library: trainer_run_command(), with which the executable runs a command line (main.cpp), reports its error and
// gets the exit code, and main() of trainer/trainer.h, for other programs.

#include "base/signal.h"
#include "cli/output.h"
#include "commands/command.h"
#include "trainer/trainer.h"

namespace trainer {
namespace commands {

extern "C" [[gnu::visibility("default")]] int trainer_run_command(const std::vector<std::string>& args) {
  return cli::run_and_report([&] { return run(args); });
}

}  // namespace commands

int main(int argc, char** argv) {
  repair_inherited_state();
  block_stop_signals();
  return cli::run_program([&] {
    check_working_folder();
    return commands::run({argv + 1, argv + argc});
  });
}

}  // namespace trainer
