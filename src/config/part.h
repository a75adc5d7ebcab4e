#pragma once
// What a file names and may configure by keys of its own: a model, a data set, a transform, a loss, an optimizer, a schedule.

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trainer::config {

class KeyTable;

// Base of the key tables that models, datasets, transforms, losses, optimizers and schedules bring along.
struct Options {
  virtual ~Options() = default;
  virtual void describe(KeyTable& keys) = 0;
};

// One choice of a family: what `name: …` may say.
struct PartKind {
  std::string name;
  std::string doc;  // one line
  std::function<std::unique_ptr<Options>()> make_options;
};
using Family = std::vector<PartKind>;

// The part that a file chose: which kind, and its values. `options` is of the kind's own type.
struct Part {
  std::string name;
  std::shared_ptr<Options> options;
};

// The kind of that name, or nullptr.
const PartKind* find_kind(const Family& family, const std::string& name);
std::vector<std::string> names_of(const Family& family);

}  // namespace trainer::config
