#pragma once
// A CSV file that gives each image its label. A line is `path,label`; a first line whose second field is "label" is a header. Quoting is
// that of RFC 4180; lines may end with CR LF, a byte order mark is skipped, and empty lines are ignored.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace trainer::datasets {

struct LabelledPath {
  int64_t line = 0;  // from 1
  std::string path;
  std::string label;
};

// Calls `use` with each line. Throws std::runtime_error that names the file and the line, the value and what to do, also when the file
// cannot be read or has no line. An Error of `use` passes.
void read_label_table(const std::filesystem::path& file, const std::function<void(const LabelledPath&)>& use);

}  // namespace trainer::datasets
