#pragma once
// `trainer data download`.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace trainer::commands {

struct DownloadArguments {
  std::vector<std::string> names;
  std::string root = "data";
};

void add_download_options(CLI::App& app, DownloadArguments& arguments);
// Throws DataError when a data set cannot be had.
void download(const DownloadArguments& arguments);

}  // namespace trainer::commands
