#pragma once

#include <vector>

#include "config/key_table.h"

namespace trainer::input {

// The keys of `normalize`.
struct Normalize final : config::Options {
  std::vector<double> mean;
  std::vector<double> std;

  void describe(config::KeyTable& keys) override;
};

}  // namespace trainer::input
