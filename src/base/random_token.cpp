#include "base/random_token.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include "trainer/error.h"

namespace trainer {

std::string random_token() {
  std::array<uint8_t, 32> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw Error("getrandom: " + std::generic_category().message(errno));
  }
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

}  // namespace trainer
