#pragma once
// The file that a user names for a result (--output).

#include <filesystem>
#include <optional>
#include <string_view>

#include "base/file.h"

namespace trainer {

// Writes a result to what `path` names:
// - A new or a regular file is complete or as it was before (AtomicFile); a link to a regular file stays a link.
// - A pipe (once it has a reader), a terminal, /dev/null and other devices for characters are written in place. /dev/stdout, /dev/stderr
//   and whatever else is already the standard output are written where they stand.
// The constructor throws UsageError that names anything else (a folder, a socket, a disk). Failures throw Error that names `path`.
class OutputFile final : public Output {
 public:
  explicit OutputFile(const std::filesystem::path& path);

  void write(std::string_view bytes) override;
  void commit();

 private:
  std::filesystem::path path_;
  std::optional<AtomicFile> file_;
  Descriptor in_place_;
};

// Whether `path` names the same file, pipe or device as the standard output.
bool is_standard_output(const std::filesystem::path& path);

void write_output_file(const std::filesystem::path& path, std::string_view content);

}  // namespace trainer
