#include "cli/report_error.h"

#include <CLI/Error.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "base/printable.h"
#include "base/standard_output.h"
#include "world/threads.h"

namespace trainer::cli {
namespace {

int report_error(const std::string& message, ExitCode exit_code) {
  // Another rank reports it.
  if (message.empty()) return static_cast<int>(exit_code);
  // The problems of a configuration are one line each and name their positions.
  const bool is_list = message.find('\n') != std::string::npos;
  std::fprintf(stderr, "%s%s\n", is_list ? "" : "error: ", printable(message).c_str());
  return static_cast<int>(exit_code);
}

}  // namespace

int run_and_report(const std::function<ExitCode()>& command) {
  try {
    return static_cast<int>(command());
  } catch (const CLI::CallForHelp&) {
    return static_cast<int>(ExitCode::kDone);
  } catch (const CLI::ParseError& error) {
    return report_error(error.what(), ExitCode::kUsage);
  } catch (const Error& error) {
    return report_error(error.what(), error.exit_code());
  } catch (const std::exception& error) {
    const auto limit = world::explain_thread_limit(error);
    return report_error(limit.empty() ? error.what() : limit, ExitCode::kFailure);
  }
}

int run_program(const std::function<ExitCode()>& command) {
  const int exit_code = run_and_report(command);
  const int printed = run_and_report([] {
    flush_standard_output();
    return ExitCode::kDone;
  });
  return exit_code != 0 ? exit_code : printed;
}

}  // namespace trainer::cli
