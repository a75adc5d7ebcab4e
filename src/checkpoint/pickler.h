#pragma once
// Converts a tree to a pickle program that torch.load(weights_only=True) can run.

#include <torch/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "trainer/state.h"

namespace trainer::checkpoint {

struct Pickle {
  // Memory that tensors of the tree view; the tree must outlive the Storage.
  struct Storage {
    const void* data;
    size_t size;  // bytes
  };

  std::string program;
  std::vector<Storage> storages;  // their keys in the pickle program are "0", "1", ...
};

Pickle pickle(const state::Tree& tree);

}  // namespace trainer::checkpoint
