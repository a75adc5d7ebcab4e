#include "commands/file_of_run.h"

#include <fmt/format.h>

#include "history/run_record.h"
#include "run/run_directory.h"
#include "trainer/error.h"

namespace trainer::commands {

void refuse_file_of_run(const std::filesystem::path& output, std::string_view option) {
  std::error_code no_file;
  const auto file = std::filesystem::canonical(output, no_file);
  if (no_file) return;
  for (auto folder = file.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    if (!history::is_run_directory(folder) || !run::is_file_of_run(file.lexically_relative(folder))) continue;
    throw UsageError(fmt::format("{} {}: this is a file of the run in {}, which would be overwritten; give another name", option,
                                 output.string(), folder.string()));
  }
}

}  // namespace trainer::commands
