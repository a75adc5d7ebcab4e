// Fuzzes whole files, and headers alone. To a header alone, this program adds its length and the values, because a mutated header no longer
// has the length that its file states.

#include "base/bytes.h"
#include "checkpoint/safetensors.h"
#include "tests/fuzz/fuzz.h"
#include "tests/testing/string_output.h"

namespace {

// Returns a file with this header and as many values as the headers of the corpus describe.
std::string make_file(std::span<const uint8_t> header) {
  constexpr size_t kNumValues = 64;
  std::string file;
  trainer::little_endian::append(file, uint64_t{header.size()});
  file.append(header.begin(), header.end());
  return file.append(kNumValues, '\1');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> input(data, size);
  const auto read = [](std::span<const uint8_t> file) {
    return trainer::state::Tree(trainer::checkpoint::read_safetensors(file, "input").tensors);
  };
  if (size > 0 && data[0] != '{') {
    trainer::fuzz::check(input, read);
  } else {
    const auto file = make_file(input);
    trainer::fuzz::check(trainer::testing::as_bytes(file), read);
  }
  return 0;
}
