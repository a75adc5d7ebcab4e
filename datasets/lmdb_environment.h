#pragma once
// LMDB environments, which are folders with a file data.mdb. They are opened without LMDB's own lock file: a finished data set is only
// read, and an unfinished one has a lock of its own.

#include <lmdb.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

// A finished environment, mapped into memory, which all processes of a host share. Nobody may write to it meanwhile.
class LmdbReader {
 public:
  // Throws std::runtime_error that names the file and the reason.
  explicit LmdbReader(const std::filesystem::path& folder);

  size_t num_entries() const { return num_entries_; }
  // The entry of that key, in the map; empty if there is none. Thread-safe. Throws std::runtime_error with only the reason if LMDB finds
  // damage.
  std::span<const uint8_t> find(std::string_view key) const;

 private:
  LmdbTransaction take_transaction() const;

  LmdbEnvironment environment_;
  MDB_dbi database_ = 0;
  size_t num_entries_ = 0;
  // A transaction may be used by one thread at a time. Each of them sees the same.
  mutable std::mutex mutex_;
  mutable std::vector<LmdbTransaction> free_;
};

// An environment that is written by one process. Throws Error that names the file, the reason and the remedy if it cannot be written.
class LmdbWriter {
 public:
  // Creates the folder and the environment if there are none.
  explicit LmdbWriter(const std::filesystem::path& folder);

  size_t num_entries() const;
  // The entry of that key; empty if there is none.
  std::string find(std::string_view key) const;
  // Adds all of the entries, or none, and returns when they are on the disk. Keys must ascend, also from call to call.
  void append(std::span<const std::pair<std::string, std::string>> entries);

 private:
  // Makes the map large enough for `num_bytes` more in that many entries.
  void reserve(size_t num_bytes, size_t num_entries);
  // Throws if `result` is not MDB_SUCCESS.
  void require(int result) const;
  LmdbTransaction begin(unsigned flags) const;

  std::filesystem::path file_;
  LmdbEnvironment environment_;
  MDB_dbi database_ = 0;
};

}  // namespace trainer::datasets
