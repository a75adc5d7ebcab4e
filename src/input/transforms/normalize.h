#pragma once

#include <vector>

#include "base/keys/key_table.h"

namespace trainer::input {

// The keys of `normalize`.
struct Normalize final : Options {
  std::vector<double> mean;
  std::vector<double> std;

  void describe(KeyTable& keys) override;
};

}  // namespace trainer::input
