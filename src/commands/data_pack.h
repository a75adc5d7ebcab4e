#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>

#include "config/experiment.h"
#include "datasets/lmdb_format.h"
#include "trainer/error.h"

namespace trainer::commands {

struct PackArguments {
  std::filesystem::path output;
  datasets::PackOptions options;
};

// Adds --output, --raw and --resize.
void add_pack_options(CLI::App& app, PackArguments& arguments);

// Copies the training and validation samples of the experiment's data set into the folder `output`, or continues that after an
// interruption, and compares all checksums. Throws UsageError, DataError naming a sample that cannot be read (dataset.on_error: fail), and
// Error, with ExitCode::kStopped after a stop request.
void pack(const config::Experiment& experiment, const PackArguments& arguments, int num_threads);

}  // namespace trainer::commands
