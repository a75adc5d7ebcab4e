#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

namespace trainer::world {

// The content of a file of the system, such as one in /proc; empty if it cannot be read, because a process may end and not every system has
// every file.
inline std::string read_system_file(const std::filesystem::path& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return std::move(text).str();
}

}  // namespace trainer::world
