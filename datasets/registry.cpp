#include "datasets/registry.h"

#include <stdexcept>

#include "datasets/cifar.h"
#include "datasets/synthetic.h"

namespace trainer::datasets {
namespace {

// `layout` is a table of the program's own, which outlives every entry.
DatasetEntry cifar_entry(std::string name, std::string doc, const CifarLayout& layout) {
  return {{std::move(name), std::move(doc), [] { return std::make_unique<CifarOptions>(); }},
          [&layout](const config::Options& options) { return cifar_info(layout, dynamic_cast<const CifarOptions&>(options)); },
          [&layout](const config::Options& options, Split split, Logger& logger) {
            return open_cifar(layout, dynamic_cast<const CifarOptions&>(options), split, logger);
          }};
}

DatasetEntry synthetic_entry() {
  return {
      {"synthetic", "Random numbers of any shape, with random classes or targets.", [] { return std::make_unique<SyntheticOptions>(); }},
      [](const config::Options& options) { return synthetic_info(dynamic_cast<const SyntheticOptions&>(options)); },
      [](const config::Options& options, Split split, Logger&) {
        return open_synthetic(dynamic_cast<const SyntheticOptions&>(options), split);
      }};
}

const DatasetEntry& entry_of(const config::Part& part) {
  for (const auto& entry : registry()) {
    if (entry.kind.name == part.name) return entry;
  }
  throw std::logic_error("no data set is named " + part.name);
}

}  // namespace

const std::vector<DatasetEntry>& registry() {
  static const std::vector<DatasetEntry> entries = {
      cifar_entry("cifar10", "CIFAR-10: 60,000 colour images of 32 x 32 in 10 classes.", cifar10_layout()),
      cifar_entry("cifar100", "CIFAR-100: 60,000 colour images of 32 x 32 in 100 classes.", cifar100_layout()),
      synthetic_entry(),
  };
  return entries;
}

config::Family dataset_family() {
  config::Family family;
  for (const auto& entry : registry()) family.push_back(entry.kind);
  return family;
}

input::DatasetInfo dataset_info(const config::Part& part) { return entry_of(part).info(*part.options); }

std::unique_ptr<input::Dataset> open_dataset(const config::Part& part, Split split, Logger& logger) {
  return entry_of(part).open(*part.options, split, logger);
}

}  // namespace trainer::datasets
