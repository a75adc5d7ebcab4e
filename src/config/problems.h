#pragma once

#include <string>
#include <vector>

#include "config/node.h"

namespace trainer::config {

// The problems of a configuration, collected so that one error reports all of them.
class Problems {
 public:
  void add(const Position& position, const std::string& key_path, const std::string& what);
  bool empty() const { return problems_.empty(); }
  // Throws one UsageError with a line for each problem, in the order of the file and then of the command line.
  void throw_if_any() const;

 private:
  struct Problem {
    Position position;
    std::string text;
  };
  std::vector<Problem> problems_;
};

}  // namespace trainer::config
