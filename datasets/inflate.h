#pragma once
// Decompression of what gzip and zip files hold.

#include <cstdint>
#include <functional>
#include <span>

namespace trainer::datasets {

enum class Deflated {
  kGzip,  // with the header and the checksum of gzip; several such members may follow each other
  kRaw,   // as in a zip file
};

// Decompresses all of `bytes` and passes the result to `take` part by part. Throws std::runtime_error with only the reason: the bytes are
// damaged, or end too early.
void inflate_all(std::span<const uint8_t> bytes, Deflated format, const std::function<void(std::span<const uint8_t>)>& take);

}  // namespace trainer::datasets
