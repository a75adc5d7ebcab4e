#pragma once
// Files for tests of damaged input, and the errors of their readers.

#include <libdeflate.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "checkpoint/pickle_opcodes.h"
#include "checkpoint/pytorch_file.h"
#include "checkpoint/safetensors.h"
#include "tests/testing/string_output.h"
#include "trainer/error.h"

namespace trainer::checkpoint {

using testing::as_bytes;

inline constexpr const char* kDamaged = "; the file is damaged: copy it again from an intact file, or save it again";

inline std::string write(const state::Tree& tree) {
  testing::StringOutput output;
  write_pytorch_file(tree, output);
  return output.content();
}

inline std::string write(const Safetensors& content) {
  testing::StringOutput output;
  write_safetensors(content, output);
  return output.content();
}

// An archive of these entries, in the folder "archive".
inline std::string make_zip(const std::vector<std::pair<std::string, std::string>>& entries) {
  using little_endian::append;
  std::string file, directory;
  for (const auto& [name, content] : entries) {
    const auto path = "archive/" + name;
    const auto size = static_cast<uint32_t>(content.size());
    std::string common("\x14\0\0\0\0\0\0\0\0\0", 10);  // version, flags, method, time and date
    for (const auto value : {libdeflate_crc32(0, content.data(), size), size, size}) append(common, value);
    append(common, static_cast<uint16_t>(path.size()));
    append(common, uint16_t{0});
    directory += std::string("PK\1\2\x14\0", 6) + common + std::string(10, '\0');
    append(directory, static_cast<uint32_t>(file.size()));
    directory += path;
    file += "PK\3\4" + common + path + content;
  }
  std::string end("PK\5\6\0\0\0\0", 8);
  for (int i = 0; i < 2; ++i) append(end, static_cast<uint16_t>(entries.size()));
  for (const auto size : {directory.size(), file.size()}) append(end, static_cast<uint32_t>(size));
  return file + directory + end + std::string(2, '\0');
}

// An archive with this pickle program, and two storages of 8 bytes.
inline std::string make_archive(const std::string& program) {
  return make_zip({{"data.pkl", program}, {"version", "3\n"}, {"data/0", "12345678"}, {"data/1", "12345678"}});
}

// `content` with `bytes` at `position`.
inline std::string replaced(std::string content, size_t position, std::string_view bytes) {
  return content.replace(position, bytes.size(), bytes);
}

// `content` with `before` replaced by `after`. Throws if it does not contain `before` or the lengths differ.
inline std::string replaced(std::string content, std::string_view before, std::string_view after) {
  const auto position = content.find(before);
  if (position == std::string::npos || before.size() != after.size()) throw std::logic_error("nothing to replace");
  return content.replace(position, before.size(), after);
}

// The message of the CheckpointError that the call throws; empty if it throws none.
template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

inline std::string pytorch_file_refusal(const std::string& content) {
  return refusal([&] { read_pytorch_file(as_bytes(content), "a.pt"); });
}

inline std::string safetensors_refusal(const std::string& content) {
  return refusal([&] { read_safetensors(as_bytes(content), "a.safetensors"); });
}

// The content of a file of tests/fuzz/corpus, which Python has written.
inline std::string read_corpus(const std::string& name) {
  return read_file(std::filesystem::path(TRAINER_SOURCE_DIR) / "tests/fuzz/corpus" / name);
}

}  // namespace trainer::checkpoint
