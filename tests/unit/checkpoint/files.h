#pragma once
// Files for tests of damaged input, and the errors of their readers.

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "checkpoint/pickle_opcodes.h"
#include "checkpoint/pytorch_file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/zip.h"
#include "tests/testing/string_output.h"
#include "trainer/error.h"

namespace trainer::checkpoint {

using testing::as_bytes;

inline constexpr const char* kDamaged = "; the file is damaged: copy it again from an intact file, or save it again";

inline std::string write(const state::Tree& tree) {
  testing::StringOutput output;
  write_pytorch_file(tree, "archive", output);
  return output.content();
}

inline std::string write(const Safetensors& content) {
  testing::StringOutput output;
  write_safetensors(content, output);
  return output.content();
}

// An archive of these entries, in the folder "archive".
inline std::string make_zip(const std::vector<std::pair<std::string, std::string>>& entries) {
  testing::StringOutput output;
  ZipWriter zip("archive", output);
  for (const auto& [name, content] : entries) zip.add(name, content);
  zip.finish();
  return output.content();
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
