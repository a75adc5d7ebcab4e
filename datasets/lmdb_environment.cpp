#include "datasets/lmdb_environment.h"

#include <fmt/format.h>

#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>

#include "base/file.h"
#include "datasets/lmdb_reader.h"
#include "trainer/error.h"

namespace trainer::datasets {
namespace {

namespace fs = std::filesystem;

// The owner sees to it that one process writes.
constexpr unsigned kFlags = MDB_NOLOCK | MDB_NOTLS;
constexpr mode_t kFileMode = 0666;

MDB_val as_value(std::string_view text) { return {text.size(), const_cast<char*>(text.data())}; }

LmdbEnvironment create_environment() {
  MDB_env* environment = nullptr;
  if (mdb_env_create(&environment) != MDB_SUCCESS) throw std::bad_alloc();
  return LmdbEnvironment(environment);
}

}  // namespace

fs::path lmdb_file(const fs::path& folder) { return folder / "data.mdb"; }

LmdbWriter::LmdbWriter(const fs::path& folder) : file_(lmdb_file(folder)), environment_(create_environment()) {
  const FileAccess access("opening", file_);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(fmt::format("cannot create {}: {}", folder.string(), explain_refusal(folder, error)));
  refuse_damage();
  require(mdb_env_open(environment_.get(), folder.c_str(), kFlags, kFileMode));
  const auto transaction = begin(MDB_RDONLY);
  require(mdb_dbi_open(transaction.get(), nullptr, 0, &database_));
}

// LMDB's library does not survive every damage.
void LmdbWriter::refuse_damage() const {
  std::error_code error;
  if (!fs::exists(file_, error) || fs::file_size(file_, error) == 0) return;
  try {
    LmdbReader(file_).check_for_writing();
  } catch (const std::runtime_error& reason) {
    throw DataError(fmt::format("{}; remove {} and pack again", reason.what(), file_.parent_path().string()));
  }
}

void LmdbWriter::require(int result) const {
  if (result == MDB_SUCCESS) return;
  // LMDB's word for a write that was cut short.
  const auto* const hint = result == EIO ? " (the disk may be full)" : "";
  const auto reason = result > 0 ? explain_refusal(file_, {result, std::generic_category()}) : std::string(mdb_strerror(result));
  throw Error(fmt::format("cannot write {}: {}{}; once this is remedied, the same command continues", file_.string(), reason, hint));
}

LmdbTransaction LmdbWriter::begin(unsigned flags) const {
  MDB_txn* transaction = nullptr;
  require(mdb_txn_begin(environment_.get(), nullptr, flags, &transaction));
  return LmdbTransaction(transaction);
}

size_t LmdbWriter::num_entries() const {
  MDB_stat status{};
  mdb_env_stat(environment_.get(), &status);
  return status.ms_entries;
}

std::string LmdbWriter::find(std::string_view key) const {
  const auto transaction = begin(MDB_RDONLY);
  auto name = as_value(key);
  MDB_val value{};
  const int result = mdb_get(transaction.get(), database_, &name, &value);
  if (result == MDB_NOTFOUND) return "";
  require(result);
  return {static_cast<const char*>(value.mv_data), value.mv_size};
}

void LmdbWriter::reserve(size_t num_bytes, size_t num_entries) {
  MDB_stat status{};
  MDB_envinfo info{};
  require(mdb_env_stat(environment_.get(), &status));
  require(mdb_env_info(environment_.get(), &info));
  // An entry begins and ends within a page, and may need one of the tree; LMDB writes anew those pages of the tree that change.
  constexpr size_t kPagesPerEntry = 3;
  constexpr size_t kOtherPages = 256;
  const size_t num_pages = info.me_last_pgno + 1 + num_entries * kPagesPerEntry + kOtherPages;
  const size_t needed = num_pages * status.ms_psize + num_bytes;
  if (needed > info.me_mapsize) require(mdb_env_set_mapsize(environment_.get(), needed));
}

void LmdbWriter::append(std::span<const std::pair<std::string, std::string>> entries) {
  const FileAccess access("writing", file_);
  size_t num_bytes = 0;
  for (const auto& [key, value] : entries) num_bytes += key.size() + value.size();
  reserve(num_bytes, entries.size());
  auto transaction = begin(0);
  for (const auto& [key, value] : entries) {
    auto name = as_value(key);
    auto content = as_value(value);
    require(mdb_put(transaction.get(), database_, &name, &content, MDB_APPEND));
  }
  require(mdb_txn_commit(transaction.release()));
}

}  // namespace trainer::datasets
