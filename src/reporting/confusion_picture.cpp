#include "reporting/confusion_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reporting/drawing/draw.h"
#include "reporting/evaluation.h"

namespace trainer::reporting {
namespace {

using drawing::Colour;

constexpr int kMargin = 4;
constexpr int kLongestName = 20;  // characters

struct Layout {
  int num_classes;
  bool shows_counts;
  int cell_height;
  int cell_width;
  int left;  // of the first cell
  int top;
};

// The cells are as small as the text allows, because TensorBoard scales wide pictures down.
Layout make_layout(const std::vector<int64_t>& confusion, const std::vector<std::string>& row_names) {
  constexpr size_t kMostWithCounts = 12;
  const size_t num_classes = row_names.size();
  const auto num_digits = static_cast<int>(std::to_string(*std::ranges::max_element(confusion)).size());
  const bool shows_counts = num_classes <= kMostWithCounts;
  int longest = 0;
  for (const auto& name : row_names) longest = std::max(longest, drawing::count_characters(name));
  return {.num_classes = static_cast<int>(num_classes),
          .shows_counts = shows_counts,
          .cell_height = shows_counts ? 16 : 14,
          .cell_width = shows_counts ? std::max(16, num_digits * drawing::kCharacterWidth + 4) : 14,
          .left = std::min(longest, kLongestName) * drawing::kCharacterWidth + 2 * kMargin,
          .top = 2 * drawing::kTextHeight + 2 * kMargin};
}

// Interpolates between white and dark blue.
Colour shade_of(double fraction) {
  constexpr Colour kDark{8, 48, 107};
  Colour colour{};
  for (size_t c = 0; c < colour.size(); ++c) colour[c] = static_cast<uint8_t>(std::lround(255 + fraction * (kDark[c] - 255)));
  return colour;
}

void draw_centred(drawing::RgbImage& image, int top, int left, int width, const std::string& text, const Colour& colour) {
  const int text_width = drawing::count_characters(text) * drawing::kCharacterWidth - 1;
  draw_text(image, top, left + std::max(0, (width - text_width) / 2), text, width, colour);
}

void draw_row(drawing::RgbImage& image, const Layout& layout, int row, const int64_t* counts) {
  const auto total = std::max<int64_t>(1, std::accumulate(counts, counts + layout.num_classes, int64_t{0}));
  const int top = layout.top + row * layout.cell_height;
  for (int column = 0; column < layout.num_classes; ++column) {
    const int left = layout.left + column * layout.cell_width;
    const double fraction = static_cast<double>(counts[column]) / static_cast<double>(total);
    // One pixel of the grid's colour separates the cells.
    fill_box(image, top, left, layout.cell_height - 1, layout.cell_width - 1, shade_of(fraction));
    if (!layout.shows_counts) continue;
    draw_centred(image, top + (layout.cell_height - drawing::kTextHeight) / 2, left, layout.cell_width - 1, std::to_string(counts[column]),
                 fraction > 0.5 ? drawing::kWhite : drawing::kBlack);
  }
}

}  // namespace

drawing::RgbImage draw_confusion(const std::vector<int64_t>& confusion, const std::vector<std::string>& class_names) {
  constexpr Colour kGrid{200, 200, 200};
  const auto num_classes = num_classes_of(confusion);
  std::vector<std::string> row_names;
  for (size_t label = 0; label < num_classes; ++label) {
    row_names.push_back(class_names.empty() ? std::to_string(label)
                                            : fmt::format("{} {}", label, name_of_class(class_names, static_cast<int64_t>(label))));
  }
  const auto layout = make_layout(confusion, row_names);
  const int grid_height = layout.num_classes * layout.cell_height;
  const int grid_width = layout.num_classes * layout.cell_width;
  constexpr const char* kTitle = "rows: actual, columns: predicted";
  const int title_width = drawing::count_characters(kTitle) * drawing::kCharacterWidth;
  auto image = drawing::make_image(layout.top + grid_height + kMargin, std::max(layout.left + grid_width, title_width + kMargin) + kMargin);
  draw_text(image, kMargin, kMargin, kTitle, title_width);
  fill_box(image, layout.top - 1, layout.left - 1, grid_height + 1, grid_width + 1, kGrid);
  for (int label = 0; label < layout.num_classes; ++label) {
    const int top = layout.top + label * layout.cell_height;
    draw_text(image, top + (layout.cell_height - drawing::kTextHeight) / 2, kMargin, row_names[static_cast<size_t>(label)],
              layout.left - 2 * kMargin);
    draw_centred(image, layout.top - drawing::kTextHeight, layout.left + label * layout.cell_width, layout.cell_width - 1,
                 std::to_string(label), drawing::kBlack);
    draw_row(image, layout, label, &confusion[static_cast<size_t>(label) * num_classes]);
  }
  return image;
}

}  // namespace trainer::reporting
