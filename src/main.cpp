// Runs the command of the command line, reports its error, and returns the exit code.

#include <CLI/Error.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "commands/command.h"

namespace {

int report_error(const std::string& message, trainer::ExitCode exit_code) {
  // Another rank reports it.
  if (message.empty()) return static_cast<int>(exit_code);
  // The problems of a configuration are one line each and name their positions.
  const bool is_list = message.find('\n') != std::string::npos;
  std::fprintf(stderr, "%s%s\n", is_list ? "" : "error: ", trainer::printable(message).c_str());
  return static_cast<int>(exit_code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return static_cast<int>(trainer::commands::run({argv + 1, argv + argc}));
  } catch (const CLI::CallForHelp&) {
    return static_cast<int>(trainer::ExitCode::kDone);
  } catch (const CLI::ParseError& error) {
    return report_error(error.what(), trainer::ExitCode::kUsage);
  } catch (const trainer::Error& error) {
    return report_error(error.what(), error.exit_code());
  } catch (const std::exception& error) {
    return report_error(error.what(), trainer::ExitCode::kFailure);
  }
}
