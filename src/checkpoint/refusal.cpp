#include "checkpoint/refusal.h"

#include <fmt/format.h>

#include "trainer/error.h"

namespace trainer::checkpoint {

void refuse(std::string_view source, std::string_view what, std::string_view cure) {
  throw CheckpointError(fmt::format("{}: {}; {}", source, what, cure));
}

void refuse_damaged(std::string_view source, std::string_view what) {
  refuse(source, what, "the file is damaged: copy it again from an intact file, or save it again");
}

void refuse_empty(std::string_view source) { refuse_damaged(source, "is empty"); }

std::string in_quotes(std::string_view text) {
  constexpr size_t kMaxBytes = 80;
  std::string shown = "\"";
  for (const char character : text.substr(0, kMaxBytes)) {
    const bool is_plain = character >= ' ' && character <= '~' && character != '"' && character != '\\';
    shown += is_plain ? std::string(1, character) : fmt::format("\\x{:02x}", static_cast<unsigned char>(character));
  }
  return shown + (text.size() > kMaxBytes ? "...\"" : "\"");
}

MappedFile map_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) refuse(path.string(), "there is no such file", "check the path");
  try {
    return MappedFile(path);
  } catch (const Error& error) {
    throw CheckpointError(error.what());
  }
}

}  // namespace trainer::checkpoint
