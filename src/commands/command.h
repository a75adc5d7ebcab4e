#pragma once
// The commands of the command line.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/standard_streams.h"
#include "base/text.h"
#include "trainer/error.h"

namespace trainer::commands {

// `args`: the arguments after the command's name. Results are printed to stdout, logs to stderr. Throws Error, and CLI11's exceptions for
// wrong arguments and for --help.
using RunCommand = ExitCode(const std::vector<std::string>& args);
struct Command {
  const char* name;
  const char* doc;
  RunCommand* run;
};

RunCommand train, init, validate, eval, calibrate, predict, config, data, doctor, report, crossval, sweep, replay, export_model, weights,
    checkpoint, verify_export, verify_resume, lr_find, list;

// In the order of the help.
std::span<const Command> all_commands();

// Runs the command that the arguments name; arguments without a command's name belong to `train`. Also writes errors to torchrun's error
// file.
ExitCode run(const std::vector<std::string>& args);

// `--plugin FILE`, which is loaded while the command line is parsed. For commands that read no experiment file, or read one from a
// checkpoint.
void add_plugin_option(CLI::App& app);

// The results that commands print to stdout.

// Like fmt::print, but with control characters escaped (base/text.h), because results quote files and their names. Throws like
// print_text().
template <class... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
  print_text(printable(fmt::format(format, std::forward<Args>(args)...)));
}

// Reports that a command has written its result to `output`. Prints nothing if the result itself went to the standard output. A closed
// standard output is not an error here, because the result is in `output`.
template <class... Args>
void print_written(const std::filesystem::path& output, fmt::format_string<Args...> format, Args&&... args) {
  if (is_standard_output_closed() || is_standard_output(output)) return;
  print("{}: {}\n", output.string(), fmt::format(format, std::forward<Args>(args)...));
}

// Texts of files, embedded by CMake: image_page.html, the page of make_image_page() (commands/pictures.h) with the names of its
// parts in braces, and THIRD_PARTY_NOTICES.md.
extern const std::string_view kImagePage, kThirdPartyNotices;

// The names of the families of components that `trainer list FAMILY` accepts.
std::vector<std::string> family_names();

}  // namespace trainer::commands
