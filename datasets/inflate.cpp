#include "datasets/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace trainer::datasets {

void inflate_all(std::span<const uint8_t> bytes, Deflated format, const std::function<void(std::span<const uint8_t>)>& take) {
  z_stream stream{};
  const int window_bits = format == Deflated::kGzip ? MAX_WBITS + 16 : -MAX_WBITS;
  if (inflateInit2(&stream, window_bits) != Z_OK) throw std::runtime_error("zlib does not start");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> owner(&stream, inflateEnd);
  std::vector<uint8_t> buffer(size_t{1} << 16);
  int result = Z_OK;
  while (result != Z_STREAM_END || !bytes.empty()) {
    if (result == Z_STREAM_END && (format == Deflated::kRaw || inflateReset(&stream) != Z_OK)) {
      throw std::runtime_error("the compressed data are damaged: other bytes follow them");
    }
    const auto length = std::min<size_t>(bytes.size(), std::numeric_limits<uInt>::max());
    stream.next_in = const_cast<Bytef*>(bytes.data());  // zlib only reads it
    stream.avail_in = static_cast<uInt>(length);
    stream.next_out = buffer.data();
    stream.avail_out = static_cast<uInt>(buffer.size());
    result = inflate(&stream, Z_NO_FLUSH);
    if (result == Z_BUF_ERROR) throw std::runtime_error("the compressed data end too early");
    if (result != Z_OK && result != Z_STREAM_END) {
      throw std::runtime_error(std::string("the compressed data are damaged: ") + (stream.msg != nullptr ? stream.msg : zError(result)));
    }
    bytes = bytes.subspan(length - stream.avail_in);
    take(std::span<const uint8_t>(buffer).first(buffer.size() - stream.avail_out));
  }
}

}  // namespace trainer::datasets
