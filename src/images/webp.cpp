#include "images/webp.h"

#include <stdexcept>

#include "images/bytes.h"
#include "images/refusal.h"
#include "images/size.h"

namespace trainer::images {

bool is_webp(std::span<const uint8_t> file) { return has_text(file, 0, "RIFF") && has_text(file, 8, "WEBP"); }

void check_webp(std::span<const uint8_t> file) {
  bytes_at(file, 8, little_endian(file, 4, 4));
  if (!has_text(file, 12, "VP8X")) return;  // the other forms have no more than 16384 pixels in a direction
  if ((bytes_at(file, 20, 1)[0] & 0x02) != 0) refuse_form("an animation");
  check_size(uint64_t{little_endian(file, 24, 3)} + 1, uint64_t{little_endian(file, 27, 3)} + 1);
}

}  // namespace trainer::images
