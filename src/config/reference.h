#pragma once
// The reference of every key, generated from the tables.

#include <string>
#include <vector>

#include "config/registries.h"

namespace trainer::config {

// A key as it is set on the command line.
struct SettableKey {
  std::string path;                 // "optimizer.lr"
  std::string doc;                  // of the first component that has the key
  std::vector<std::string> values;  // the words that the key can be set to, of all components that have it
  bool is_path = false;
};
// All keys except those of list items such as transforms.
std::vector<SettableKey> settable_keys(const Registries& registries);

enum class ReferenceFormat { kText, kMarkdown };

// `name` selects what to show: a section ("optimizer", "training.ema"), a component ("optimizer.sgd", "transform.random_crop") or a key
// ("training.epochs", "optimizer.lr"); if it is empty, everything. Throws UsageError for an unknown name.
std::string reference(const Registries& registries, ReferenceFormat format, const std::string& name = "");

}  // namespace trainer::config
