#pragma once

#include <string>

#include "trainer/error.h"

namespace trainer {

// An option of the library has a value that cannot be used. What has read the options from a file can name the place there instead.
class OptionError : public UsageError {
 public:
  // `member`: of a struct of options.
  OptionError(const std::string& member, const std::string& problem)
      : UsageError(member + ": " + problem), member_(member), problem_(problem) {}

  const std::string& member() const { return member_; }
  const std::string& problem() const { return problem_; }

 private:
  std::string member_;
  std::string problem_;
};

}  // namespace trainer
