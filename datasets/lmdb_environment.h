#pragma once
// LMDB environments that are written, which are folders with a file data.mdb. They are opened without LMDB's own lock file, because an
// unfinished data set has a lock of its own. lmdb_reader.h reads them.

#include <lmdb.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace trainer::datasets {

struct CloseEnvironment {
  void operator()(MDB_env* environment) const { mdb_env_close(environment); }
};
using LmdbEnvironment = std::unique_ptr<MDB_env, CloseEnvironment>;
struct AbortTransaction {
  void operator()(MDB_txn* transaction) const { mdb_txn_abort(transaction); }
};
using LmdbTransaction = std::unique_ptr<MDB_txn, AbortTransaction>;

std::filesystem::path lmdb_file(const std::filesystem::path& folder);

// An environment that is written by one process. Throws Error that names the file, the reason and the remedy if it cannot be written.
class LmdbWriter {
 public:
  // Creates the folder and the environment if there are none. Throws DataError that names the file and the reason if the file is damaged.
  explicit LmdbWriter(const std::filesystem::path& folder);

  size_t num_entries() const;
  // The entry of that key; empty if there is none.
  std::string find(std::string_view key) const;
  // Adds all of the entries, or none, and returns when they are on the disk. Keys must ascend, also from call to call.
  void append(std::span<const std::pair<std::string, std::string>> entries);

 private:
  // Makes the map large enough for `num_bytes` more in that many entries.
  void reserve(size_t num_bytes, size_t num_entries);
  void refuse_damage() const;
  // Throws if `result` is not MDB_SUCCESS.
  void require(int result) const;
  LmdbTransaction begin(unsigned flags) const;

  std::filesystem::path file_;
  LmdbEnvironment environment_;
  MDB_dbi database_ = 0;
};

}  // namespace trainer::datasets
