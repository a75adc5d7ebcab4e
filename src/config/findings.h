#pragma once

#include <initializer_list>
#include <string>

#include "config/problems.h"
#include "config/yaml.h"

namespace trainer::config {

// The value at `path` in a tree; null if it is not given.
const Node* find_value(const Node& root, const std::string& path);

// The position of the value at `path` ("dataset.train_transforms[1]") in a tree; if it is not given, that of the innermost section around
// it that is.
Position position_of(const Node& root, const std::string& path);

// For checks across sections: reports what they find at the position of a key.
class Findings {
 public:
  // Both must outlive it.
  Findings(const Node& root, Problems& problems) : root_(root), problems_(problems) {}

  // Whether the experiment gives that key.
  bool is_given(const std::string& path) const;
  // Whether these sections were read without a problem, so that their values can be checked.
  bool are_readable(std::initializer_list<const char*> sections) const;
  // Whether also no contradiction was found in them.
  bool are_consistent(std::initializer_list<const char*> sections) const;
  void refuse(const std::string& path, const std::string& what);
  void warn(const std::string& path, const std::string& what);

 private:
  const Node& root_;
  Problems& problems_;
};

}  // namespace trainer::config
