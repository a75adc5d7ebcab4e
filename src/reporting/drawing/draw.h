#pragma once
// Rectangles and small text in an image. Unlike those of OpenCV, which only the image module loads, they need no library.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "reporting/drawing/png.h"

namespace trainer::drawing {

using Colour = std::array<uint8_t, 3>;
inline constexpr Colour kBlack{0, 0, 0};
inline constexpr Colour kWhite{255, 255, 255};

RgbImage make_image(int height, int width, const Colour& colour = kWhite);

// What lies outside the image is left out.
void fill_box(RgbImage& image, int top, int left, int height, int width, const Colour& colour);

// The height of a line of draw_text(), and the width of one character.
inline constexpr int kTextHeight = 12;
inline constexpr int kCharacterWidth = 6;
// Draws a line of text (UTF-8) whose upper left corner is (top, left), `zoom` times as large. What does not fit into `width` pixels, or
// into the image, is left out. Latin letters are drawn without their accents, other characters that are not ASCII as question marks.
void draw_text(RgbImage& image, int top, int left, std::string_view text, int width, const Colour& colour = kBlack, int zoom = 1);

// The text as draw_text() draws it, in ASCII; nullopt: it has characters that would be question marks.
std::optional<std::string> drawable(std::string_view text);

// How many characters draw_text() draws.
int count_characters(std::string_view text);

}  // namespace trainer::drawing
