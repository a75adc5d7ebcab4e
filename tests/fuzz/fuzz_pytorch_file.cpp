// Fuzzes archives and legacy files, and pickle programs without an archive, because an archive's checksum would reject mutated programs.

#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <map>
#include <string>

#include "checkpoint/pytorch_file.h"
#include "checkpoint/read_file.h"
#include "checkpoint/refusal.h"
#include "checkpoint/unpickler.h"
#include "tests/fuzz/fuzz.h"

namespace {

using trainer::checkpoint::Budget;

// The storages to which the programs of the corpus refer.
torch::Storage load_storage(std::string_view key, uint64_t num_elements, size_t element_size) {
  static const auto storages = [] {
    std::map<std::string, torch::Storage, std::less<>> made;
    for (const auto& [name, num_bytes] : {std::pair("0", 24), std::pair("1", 12), std::pair("2", 6), std::pair("3", 0)}) {
      made.emplace(name, torch::Storage(torch::Storage::use_byte_size_t(), num_bytes, c10::GetCPUAllocator(), /*resizable=*/true));
    }
    return made;
  }();
  const auto found = storages.find(key);
  if (found == storages.end() || found->second.nbytes() != num_elements * element_size)
    trainer::checkpoint::refuse_damaged("input", "holds no such storage");
  return found->second;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const bool is_archive = size >= 2 && std::memcmp(data, "PK", 2) == 0;
  const bool is_legacy = std::string_view(reinterpret_cast<const char*>(data), size).starts_with(trainer::checkpoint::kLegacyMagic);
  trainer::fuzz::check({data, size}, [&](std::span<const uint8_t> input) {
    if (is_archive) return trainer::checkpoint::read_pytorch_file(input, "input");
    if (is_legacy) return trainer::checkpoint::read_legacy_file(input, "input");
    Budget budget(input.size(), "input");
    return trainer::checkpoint::unpickle(input, "input", trainer::checkpoint::StorageIds::kWhole, load_storage, budget).tree;
  });
  return 0;
}
