#include "base/random.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include "trainer/error.h"
#include "trainer/random.h"

namespace trainer {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53U} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

CounterRandom::CounterRandom(uint64_t seed, uint64_t stream, uint32_t substream)
    : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
      counter_{0, substream, static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)} {}

uint32_t CounterRandom::next_uint32() {
  if (used_ == block_.size()) {
    block_ = philox4x32(counter_, key_);
    ++counter_[0];
    used_ = 0;
  }
  return block_[used_++];
}

uint64_t mix_seed(uint64_t seed, uint64_t a, uint64_t b) {
  const auto finalise = [](uint64_t value) { return next_splitmix64(value); };
  return finalise(finalise(finalise(seed) + a) + b);
}

std::string random_token() {
  std::array<uint8_t, 32> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw Error("cannot get random numbers from the system (getrandom): " + std::generic_category().message(errno));
  }
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

}  // namespace trainer
