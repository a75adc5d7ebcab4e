#include "checkpoint/read_file.h"

#include <string_view>

#include "base/file.h"
#include "base/little_endian.h"
#include "checkpoint/legacy_file.h"
#include "checkpoint/pytorch_file.h"
#include "checkpoint/refusal.h"
#include "checkpoint/safetensors.h"
#include "trainer/checkpoint.h"

namespace trainer::checkpoint {
namespace {

using little_endian::load;

using namespace std::string_view_literals;

// The first bytes of files, by format.
constexpr auto kZip = "PK\x03\x04"sv;
constexpr auto kEmptyZip = "PK\x05\x06"sv;
constexpr char kPickle = '\x80';

bool begins_as_safetensors(std::string_view text, std::span<const uint8_t> bytes) {
  return text.size() > sizeof(uint64_t) && text[sizeof(uint64_t)] == '{' && load<uint64_t>(bytes.data()) <= kMaxSafetensorsHeader;
}

}  // namespace

state::Tree load(const std::filesystem::path& path) {
  const FileAccess access("reading", path);
  const auto file = map_file(path);
  return load(file.bytes(), path.string());
}

state::Tree load(std::span<const uint8_t> bytes, const std::string& source) {
  if (bytes.empty()) refuse_empty(source);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with(kZip) || text.starts_with(kEmptyZip)) return read_pytorch_file(bytes, source);
  if (begins_as_safetensors(text, bytes)) return read_safetensors(bytes, source).tensors;
  if (text.starts_with(kLegacyMagic)) return read_legacy_file(bytes, source);
  if (text.front() == kPickle) {
    refuse(source, "is a Python pickle, which can execute anything, and not in the format of torch.save", "save it with torch.save");
  }
  refuse(source, "is neither a file of torch.save nor a safetensors file, by its first bytes " + in_quotes(text.substr(0, 16)),
         "give a file of one of these formats");
}

}  // namespace trainer::checkpoint
