#pragma once
// Where the events of a run go, beside the console: its files, and the program of logging.command.

#include <memory>

#include "reporting/event_command.h"
#include "reporting/reporter.h"
#include "session/session.h"

namespace trainer::commands {

// Collective: refuses a program of logging.command that cannot be found, before data is loaded.
void check_event_command(session::RankContext& context);
// Collective: starts the program of logging.command on rank 0; null on other ranks, and without one.
std::unique_ptr<reporting::EventCommand> start_event_command(session::RankContext& context);

// On the rank that writes the files of the run. `command`: null if there is none. All arguments must outlive the reporter.
void add_files(reporting::Reporter& reporter, const session::RankContext& context, session::Session& session,
               const run::RunDirectory& directory, reporting::EventCommand* command);

}  // namespace trainer::commands
