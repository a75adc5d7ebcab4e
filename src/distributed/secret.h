#pragma once

#include <c10/util/intrusive_ptr.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/log.h"
#include "launch/world/rank_env.h"

namespace trainer::distributed {

// The secret of distributed.secret_file: the file's text without white space at its ends. Logs a warning if other users may read the file.
// Throws UsageError if it is no regular file, cannot be read, is longer than 4 KiB, or has fewer than 16 characters.
world::RunSecret read_secret_file(const std::filesystem::path& file, Logger& logger);

// For messages: "distributed.secret_file", "torchrun's run id (TORCHELASTIC_RUN_ID)".
std::string describe(world::RunSecret::Source source);

}  // namespace trainer::distributed

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
