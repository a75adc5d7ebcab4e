#pragma once
// A tree as a pickle program that torch.load(weights_only=True) runs.

#include <torch/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "state/tree.h"

namespace trainer::checkpoint {

struct Pickle {
  // Memory that tensors of the tree view, which must outlive this.
  struct Storage {
    const void* data;
    size_t size;  // bytes
  };

  std::string program;
  std::vector<Storage> storages;  // the program calls them "0", "1", ...
};

Pickle pickle(const state::Tree& tree);

}  // namespace trainer::checkpoint
