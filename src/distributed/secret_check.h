#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>
#include <vector>

#include "base/log.h"
#include "world/rank_env.h"

namespace c10d {
class Store;
}

namespace trainer::distributed {

// Ranks with different secrets do not find each other's values. So that they are told why, each says in clear which kind of secret it has.
// A stranger can say anything there, so it only explains why ranks have not met.
class SecretCheck {
 public:
  // `open_store`: that all ranks read, whatever their secret.
  SecretCheck(c10::intrusive_ptr<c10d::Store> open_store, world::RunSecret::Source own, int rank);

  // On rank 0, once its first value is in the sealed store.
  void announce();
  // On another rank that waits for rank 0: how their secrets differ, if rank 0 has announced itself, but `sealed_store` has no valid value
  // under `key_of_rank0`; else empty.
  std::string find_difference(c10d::Store& sealed_store, const std::string& key_of_rank0);
  // On rank 0: logs a warning about those of the missing ranks that have found a difference.
  void report(const std::vector<int>& missing, Logger& logger);

 private:
  c10::intrusive_ptr<c10d::Store> open_store_;
  world::RunSecret::Source own_;
  int rank_;
};

}  // namespace trainer::distributed
