#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "config/yaml.h"

namespace trainer::config {

// What to do about a key that this version of the program does not know.
enum class UnknownKeys {
  kRefuse,
  // For the experiment of a checkpoint, which another version may have written: only overrides and the parts that predictions need must be
  // known completely.
  kIgnoreUnlessNeeded,
};

// The problems of a configuration, collected so that one error reports all of them, and the warnings.
class Problems {
 public:
  explicit Problems(UnknownKeys unknown_keys = UnknownKeys::kRefuse) : unknown_keys_(unknown_keys) {}

  enum class Kind {
    kInvalid,        // a key that is unknown or missing, or whose value cannot be used
    kContradiction,  // a valid key that contradicts others
    kWarning,        // a key that is valid but probably unintended
    kIgnored         // an unknown key that does not matter
  };
  void add(const Position& position, const std::string& key_path, const std::string& what, Kind kind = Kind::kInvalid);
  // Unknown keys below this path are never ignored.
  void need(const std::string& section) { needed_.push_back(section); }
  void add_unknown_key(const Position& position, const std::string& key_path, const std::string& what);

  // Whether the section at this path and everything below it were read without a problem; with kContradiction, also without a
  // contradiction. An empty path stands for the whole file.
  bool is_readable(const std::string& section, Kind most = Kind::kInvalid) const;
  // One line for each finding of this kind, sorted by file, line and column; those of the command line come last.
  std::vector<std::string> lines(Kind kind) const;
  // Throws one UsageError with a line for each invalid key and each contradiction, in the same order.
  void throw_if_any() const;

 private:
  struct Problem {
    Kind kind = Kind::kInvalid;
    Position position;
    std::string key_path;
    std::string text;
  };
  std::vector<std::string> lines(Kind first, Kind last) const;

  UnknownKeys unknown_keys_;
  std::vector<std::string> needed_;
  std::vector<Problem> problems_;
};

// The value at `path` in a tree; null if it is not given.
const Node* find_value(const Node& root, const std::string& path);

// The position of the value at `path` ("dataset.train_transforms[1]") in a tree; if it is not given, the position of the innermost given
// section around it.
Position position_of(const Node& root, const std::string& path);

// For checks across sections: reports each finding at the position of its key.
class Findings {
 public:
  // `root` and `problems` must outlive this object.
  Findings(const Node& root, Problems& problems) : root_(root), problems_(problems) {}

  // Whether the experiment file or an override sets the key.
  bool is_given(const std::string& path) const;
  // Whether these sections were read without a problem, so that their values can be checked.
  bool are_readable(std::initializer_list<const char*> sections) const;
  // The same, and whether no contradiction was found in them.
  bool are_consistent(std::initializer_list<const char*> sections) const;
  void refuse(const std::string& path, const std::string& what);
  void warn(const std::string& path, const std::string& what);

 private:
  const Node& root_;
  Problems& problems_;
};

}  // namespace trainer::config
