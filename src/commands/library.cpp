// The function by which the executable calls the commands (cli/training_library.h).

#include "cli/report_error.h"
#include "cli/training_library.h"
#include "commands/command.h"

namespace trainer::commands {

extern "C" [[gnu::visibility("default")]] int trainer_run_command(const std::vector<std::string>& args) {
  static_assert(std::is_same_v<decltype(&trainer_run_command), cli::TrainingLibraryEntry>);
  return cli::run_and_report([&] { return run(args); });
}

}  // namespace trainer::commands
