#pragma once
// PBM, PGM and PPM files (P1 to P6).

#include <cstdint>
#include <span>

#include "data/image_file.h"

namespace trainer::images {

bool is_pnm(std::span<const uint8_t> file);

// Throws std::runtime_error with the reason.
void decode_pnm(std::span<const uint8_t> file, data::RgbImage& image);

// The largest value that the header allows; 1 for a PBM file. Throws as decode_pnm().
uint32_t find_pnm_maximum(std::span<const uint8_t> file);

}  // namespace trainer::images
