#include "base/path.h"

#include <cstdlib>

#include "trainer/error.h"

namespace trainer {
namespace {

std::string variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) {
    throw Error(name.empty() ? "${} contains no variable name" : "the environment variable " + name + " is not set; set it");
  }
  return value;
}

}  // namespace

std::string expand_path(const std::string& path) {
  std::string expanded;
  size_t begin = 0;
  if (path.starts_with('~')) {
    begin = 1;
    if (path.size() > begin && path[begin] != '/')
      throw Error("~ must be followed by / or nothing; write the path of another user's folder in full");
    expanded = variable("HOME");
  }
  while (true) {
    const size_t dollar = path.find("${", begin);
    expanded += path.substr(begin, dollar - begin);
    if (dollar == std::string::npos) return expanded;
    const size_t end = path.find('}', dollar);
    if (end == std::string::npos) throw Error("a ${ has no closing }");
    expanded += variable(path.substr(dollar + 2, end - dollar - 2));
    begin = end + 1;
  }
}

std::string home_folder() {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  if (auto home = value("TRAINER_HOME"); !home.empty()) return home;
  // A relative path is to be ignored (XDG Base Directory Specification).
  if (const auto cache = value("XDG_CACHE_HOME"); cache.starts_with('/')) return cache + "/trainer";
  if (const auto home = value("HOME"); !home.empty()) return home + "/.cache/trainer";
  throw Error("HOME is not set, so there is no folder for weights and caches; set HOME, or set TRAINER_HOME to a folder");
}

}  // namespace trainer
