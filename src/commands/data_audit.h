#pragma once
// `trainer data audit`: finds problems of a data set that make results wrong, such as the same image in training and validation.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string_view>

#include "config/experiment.h"
#include "config/load.h"
#include "trainer/error.h"

namespace trainer::commands {

// The page for --page, with the names of its parts in braces; embedded by CMake from audit_page.html.
extern const std::string_view kAuditPage;

struct AuditArguments {
  bool json = false;
  std::filesystem::path page;  // empty: none is written
};

void add_audit_options(CLI::App& app, AuditArguments& arguments);

// Prints the findings. The exit code is kData if one of them damages results. `source`: the source of the experiment.
ExitCode audit(const config::Experiment& experiment, const config::ExperimentSource& source, const AuditArguments& arguments,
               int num_threads);

}  // namespace trainer::commands
