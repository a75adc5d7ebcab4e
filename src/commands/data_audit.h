#pragma once
// `trainer data audit`: what makes the results of a data set wrong, such as the same picture in training and validation.

#include <CLI/CLI.hpp>
#include <filesystem>

#include "config/experiment.h"
#include "config/load.h"
#include "trainer/error.h"

namespace trainer::commands {

struct AuditArguments {
  bool json = false;
  std::filesystem::path page;  // empty: none is written
};

void add_audit_options(CLI::App& app, AuditArguments& arguments);

// Prints what it finds. The exit code is kData if something of it damages results. `source`: of the experiment.
ExitCode audit(const config::Experiment& experiment, const config::ExperimentSource& source, const AuditArguments& arguments,
               int num_threads);

}  // namespace trainer::commands
