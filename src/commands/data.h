#pragma once
// `trainer data audit` and `trainer data pack`.

#include <CLI/CLI.hpp>
#include <filesystem>

#include "config/experiment.h"
#include "config/load.h"
#include "datasets/lmdb_file.h"
#include "trainer/error.h"

namespace trainer::commands {

struct AuditArguments {
  bool json = false;
  std::filesystem::path page;  // empty: none is written
};

void add_audit_options(CLI::App& app, AuditArguments& arguments);

// Prints problems of a data set that make results wrong, such as the same image in training and validation. The exit code is kData if there
// are any. `source`: the source of the experiment.
ExitCode audit(const config::Experiment& experiment, const config::ExperimentSource& source, const AuditArguments& arguments,
               int num_threads);

struct PackArguments {
  std::filesystem::path output;
  datasets::PackOptions options;
};

// Adds --output, --raw and --resize.
void add_pack_options(CLI::App& app, PackArguments& arguments);

// Copies the training and validation samples of the experiment's data set into the folder `output`, or continues an interrupted copy, and
// compares all checksums. Throws UsageError, DataError naming a sample that cannot be read (dataset.on_error: fail), and Error, with
// ExitCode::kStopped after a stop request.
void pack(const config::Experiment& experiment, const PackArguments& arguments, int num_threads);

}  // namespace trainer::commands
