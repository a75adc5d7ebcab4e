#pragma once
// Reads LMDB environments without LMDB's library, which trusts what a file says about its pages: damage of a few bytes makes it divide by
// zero, read outside of its map or fail an assertion. Here every number is checked before it is used.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/file.h"

namespace trainer::datasets {

// What an environment says about itself.
struct LmdbState {
  struct Database {
    uint16_t flags = 0;
    uint16_t depth = 0;
    uint64_t num_entries = 0;
    uint64_t root = 0;
  };
  uint32_t page_bytes = 0;
  Database free = {};  // of the pages that are not used
  Database main = {};
  uint64_t last_page = 0;
  uint64_t transaction = 0;
};

// The main database of an environment, mapped into memory, which all processes of a host share. Nobody may write to it meanwhile.
class LmdbReader {
 public:
  // Reads only what the environment says about itself. Throws std::runtime_error that names the file and the reason.
  explicit LmdbReader(const std::filesystem::path& file);

  uint64_t num_entries() const { return state_.main.num_entries; }
  // The entry of that key, in the map; empty if there is none. Reads the pages of the tree on the way to it, but not those of a large
  // entry. Thread-safe. Throws std::runtime_error with only the reason if one of them is damaged.
  std::span<const uint8_t> find(std::string_view key) const;

  // Reads all pages of the trees. Throws std::runtime_error with only the reason if LMDB's library must not add entries to the file,
  // because one of them is damaged.
  void check_for_writing() const;

 private:
  MappedFile file_;
  LmdbState state_;
  bool has_both_states_ = false;
};

}  // namespace trainer::datasets
