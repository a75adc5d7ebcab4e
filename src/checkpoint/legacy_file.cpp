#include "checkpoint/legacy_file.h"

#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>

#include "base/little_endian.h"
#include "base/plural.h"
#include "checkpoint/refusal.h"
#include "checkpoint/unpickler.h"

namespace trainer::checkpoint {
namespace {

using namespace std::string_view_literals;

// torch.serialization.MAGIC_NUMBER as a pickle program.
constexpr auto kMagic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."sv;
constexpr int64_t kVersion = 1001;  // torch.serialization.PROTOCOL_VERSION

class LegacyFile {
 public:
  LegacyFile(std::span<const uint8_t> bytes, const std::string& source)
      : source_(source), rest_(bytes.subspan(kMagic.size())), unclaimed_(bytes.size()), budget_(bytes.size(), source) {}

  state::Tree read() {
    check_version(next_pickle("format version"));
    check_byte_order(next_pickle("system"));
    auto object = next_pickle("object");
    read_storages(next_pickle("list of storages"));
    return object;
  }

 private:
  struct Storage {
    torch::Storage memory;
    size_t element_size;
    bool is_read = false;
  };

  state::Tree next_pickle(const char* what) {
    const auto load = [this](const StorageReference& reference) { return add_storage(reference); };
    auto [tree, size] = unpickle(rest_, fmt::format("{}: {}", source_, what), load, budget_);
    rest_ = rest_.subspan(size);
    return tree;
  }

  void check_version(const state::Tree& tree) const {
    const auto* version = std::get_if<int64_t>(&tree.value());
    if (version == nullptr || *version != kVersion) refuse_damaged(source_, fmt::format("is not of version {} of its format", kVersion));
  }

  void check_byte_order(const state::Tree& tree) const {
    const auto* system = std::get_if<state::Dict>(&tree.value());
    const auto* little_endian = system != nullptr ? system->find("little_endian") : nullptr;
    const auto* is_little = little_endian != nullptr ? std::get_if<bool>(&little_endian->value()) : nullptr;
    if (is_little == nullptr) refuse_damaged(source_, "does not tell its byte order");
    if (!*is_little) refuse(source_, "holds numbers in the byte order \"big\"", "load and save it again on an x86 or ARM machine");
  }

  // Its content follows after the object that refers to it.
  torch::Storage add_storage(const StorageReference& reference) {
    // Including its node in the map.
    constexpr size_t kStorageMemory = 512;
    budget_.take(2, reference.key.size());
    const auto known = storages_.find(reference.key);
    if (known != storages_.end()) {
      if (known->second.memory.nbytes() != reference.num_bytes) {
        refuse_damaged(source_, fmt::format("refers to storage {} with {} and with {} bytes", in_quotes(reference.key),
                                            known->second.memory.nbytes(), reference.num_bytes));
      }
      return known->second.memory;
    }
    if (reference.num_bytes > unclaimed_) refuse_damaged(source_, "has fewer bytes than its storages need");
    unclaimed_ -= reference.num_bytes;
    budget_.take(kStorageMemory);
    budget_.take(reference.num_bytes);
    torch::Storage memory(torch::Storage::use_byte_size_t(), static_cast<int64_t>(reference.num_bytes), c10::GetCPUAllocator(),
                          /*resizable=*/true);
    storages_.emplace(reference.key, Storage{memory, reference.element_size});
    return memory;
  }

  void read_storages(const state::Tree& tree) {
    const auto* keys = std::get_if<state::List>(&tree.value());
    if (keys == nullptr) refuse_damaged(source_, "has no list of its storages");
    for (const auto& element : *keys) {
      const auto* key = std::get_if<std::string>(&element.value());
      const auto found = key != nullptr ? storages_.find(*key) : storages_.end();
      if (found == storages_.end()) refuse_damaged(source_, "lists a storage that no tensor needs");
      if (found->second.is_read) refuse_damaged(source_, fmt::format("lists storage {} twice", in_quotes(*key)));
      read_storage(*key, found->second);
    }
    const auto missing = std::ranges::find_if(storages_, [](const auto& item) { return !item.second.is_read; });
    if (missing != storages_.end()) {
      refuse_damaged(source_, fmt::format("does not list storage {}, which a tensor needs", in_quotes(missing->first)));
    }
    if (!rest_.empty()) refuse_damaged(source_, fmt::format("has {} after its last storage", counted(rest_.size(), "byte")));
  }

  void read_storage(const std::string& key, Storage& storage) {
    const size_t num_bytes = storage.memory.nbytes();
    if (rest_.size() < sizeof(uint64_t) + num_bytes) refuse_damaged(source_, fmt::format("ends in storage {}", in_quotes(key)));
    const auto num_elements = little_endian::load<uint64_t>(rest_.data());
    if (num_elements != num_bytes / storage.element_size) {
      refuse_damaged(source_, fmt::format("holds {} elements of storage {}, but a tensor needs {}", num_elements, in_quotes(key),
                                          num_bytes / storage.element_size));
    }
    rest_ = rest_.subspan(sizeof(uint64_t));
    if (num_bytes > 0) std::memcpy(storage.memory.mutable_data(), rest_.data(), num_bytes);
    rest_ = rest_.subspan(num_bytes);
    storage.is_read = true;
  }

  std::string source_;
  std::span<const uint8_t> rest_;
  size_t unclaimed_;  // bytes of the file that no storage has taken yet
  Budget budget_;
  std::map<std::string, Storage, std::less<>> storages_;
};

}  // namespace

bool begins_as_legacy_file(std::span<const uint8_t> bytes) {
  return bytes.size() >= kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

state::Tree read_legacy_file(std::span<const uint8_t> bytes, const std::string& source) { return LegacyFile(bytes, source).read(); }

}  // namespace trainer::checkpoint
