#include "data/picture.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>

#include "data/window_copy.h"

namespace trainer::data {

std::shared_ptr<PictureMemory> make_picture_memory() { return std::make_shared<PictureMemory>(); }

Picture::Picture(std::span<const uint8_t> file, PictureMemory& memory, const ImageDecoding& decoding)
    : has_values_(decoding.has_float_pixels()), decoding_(decoding), memory_(memory) {
  if (const auto size = find_size(file, decoding)) {
    file_ = file;
    view_ = ImageView::whole(nullptr, decoding.num_channels().value(), size->height, size->width, PixelOrder::kInterleaved);
  } else {
    view_ = decode_image(file, decoding, memory.decoded);
  }
}

Box Picture::visible_part() const {
  if (!is_inside() && view_.padding == Padding::kReflect) return {0, 0, view_.height, view_.width};
  Box part;
  part.top = std::clamp(view_.top, 0, view_.height);
  part.left = std::clamp(view_.left, 0, view_.width);
  part.height = std::clamp(view_.top + view_.window_height, part.top, view_.height) - part.top;
  part.width = std::clamp(view_.left + view_.window_width, part.left, view_.width) - part.left;
  // If either side is empty, both are set to 0, so that no rows without pixels are read.
  if (part.height == 0 || part.width == 0) part.height = part.width = 0;
  return part;
}

void Picture::decode(ImageView& image, const Box& part) {
  if (file_.empty()) return;
  // decode_part() needs a part that is not empty, so one pixel is decoded if only padding is visible.
  const bool is_empty = part.height == 0 || part.width == 0;
  const auto needed = is_empty ? Box{0, 0, 1, 1} : part;
  const auto decoded = decode_part(file_, needed, decoding_, memory_.decoded.pixels);
  file_ = {};
  image.pixels = decoded.pixels;
  image.top += decoded.top - needed.top;
  image.left += decoded.left - needed.left;
  image.height = decoded.height;
  image.width = decoded.width;
}

bool Picture::is_whole() const {
  return view_.top == 0 && view_.left == 0 && view_.window_height == view_.height && view_.window_width == view_.width;
}

bool Picture::is_inside() const {
  return view_.top >= 0 && view_.left >= 0 && view_.top + view_.window_height <= view_.height &&
         view_.left + view_.window_width <= view_.width;
}

template <class T>
T* Picture::allocate(std::array<std::vector<T>, 2>& buffers, int height, int width) {
  auto& buffer = buffers[memory_.next];
  memory_.next = 1 - memory_.next;
  buffer.resize(static_cast<size_t>(height) * static_cast<size_t>(width) * static_cast<size_t>(view_.channels));
  return buffer.data();
}

void Picture::copy_window() {
  const auto window = view();
  const auto height = window.window_height, width = window.window_width;
  view_ = ImageView::whole(nullptr, window.channels, height, width, PixelOrder::kInterleaved);
  if (has_values_) {
    auto* values = allocate(memory_.values, height, width);
    copy_values(window, values);
    view_.values = values;
    view_.maximum = window.maximum;
  } else {
    view_.pixels = owned_ = allocate(memory_.pixels, height, width);
    copy_rows(window, 0, height, PixelOrder::kInterleaved, owned_);
  }
}

void Picture::crop(int top, int left, int height, int width, Padding padding, uint8_t fill) {
  if (mask_ != nullptr) mask_->crop(top, left, height, width, padding, kNoClass);
  const bool extends = top < 0 || left < 0 || top + height > view_.window_height || left + width > view_.window_width;
  // The stored pixels outside the window of an earlier crop must not reappear, so the window is copied.
  if (extends && !is_whole()) copy_window();
  if (extends) {
    view_.padding = padding;
    view_.fill = fill;
  }
  view_.top += view_.flipped ? view_.window_height - height - top : top;
  view_.left += view_.mirrored ? view_.window_width - width - left : left;
  view_.window_height = height;
  view_.window_width = width;
}

void Picture::resize(int height, int width, Interpolation interpolation) {
  if (height == view_.window_height && width == view_.window_width) return;
  if (mask_ != nullptr) mask_->resize(height, width, Interpolation::kNearest);
  if (is_delayed_) view();
  if (view_.mirrored || view_.flipped || !is_inside()) copy_window();
  resized_ = view_;
  interpolation_ = interpolation;
  is_delayed_ = true;
  view_ = ImageView::whole(nullptr, resized_.channels, height, width, PixelOrder::kInterleaved);
  view_.maximum = resized_.maximum;
}

const ImageView& Picture::view() {
  if (!is_delayed_) {
    decode(view_, visible_part());
    return view_;
  }
  is_delayed_ = false;
  const auto part = visible_part();
  const auto needed = prepare_resample(resized_, view_.height, view_.width, part, interpolation_, memory_.resample);
  decode(resized_, {resized_.top + needed.top, resized_.left + needed.left, needed.height, needed.width});
  if (has_values_) {
    auto* values = allocate(memory_.values, part.height, part.width);
    resample_values(resized_, view_.height, view_.width, part, needed, memory_.resample, values);
    view_.values = values;
  } else {
    auto* pixels = allocate(memory_.pixels, part.height, part.width);
    resample(resized_, view_.height, view_.width, part, needed, memory_.resample, pixels);
    view_.pixels = pixels;
    owned_ = pixels;
  }
  view_.top -= part.top;
  view_.left -= part.left;
  view_.height = part.height;
  view_.width = part.width;
  return view_;
}

PixelArray Picture::pixels() {
  if (has_values_) throw std::logic_error("8-bit pixels were requested from an image that does not have 8 bits");
  view();
  const bool is_owned = owned_ != nullptr && view_.pixels == owned_;
  if (!is_owned || !is_whole() || view_.mirrored || view_.flipped) copy_window();
  return {owned_, view_.channels, view_.height, view_.width};
}

void Picture::mirror() {
  if (mask_ != nullptr) mask_->mirror();
  view_.mirrored = !view_.mirrored;
}

void Picture::flip() {
  if (mask_ != nullptr) mask_->flip();
  view_.flipped = !view_.flipped;
}

void Picture::set_mask(Picture& mask) {
  mask_ = &mask;
  mask.view_.fill = kNoClass;
}

BlurMemory& Picture::blur_memory() { return memory_.blur; }

void Picture::make_visible() {
  if (!has_values_) return;
  copy_window();
  const std::span values(view_.values,
                         static_cast<size_t>(view_.height) * static_cast<size_t>(view_.width) * static_cast<size_t>(view_.channels));
  const auto [least, greatest] = std::ranges::minmax(values);
  const float range = greatest > least ? greatest - least : 1;
  owned_ = allocate(memory_.pixels, view_.height, view_.width);
  std::ranges::transform(values, owned_, [&](float value) { return static_cast<uint8_t>(std::lround(255 * ((value - least) / range))); });
  view_ = ImageView::whole(owned_, view_.channels, view_.height, view_.width, PixelOrder::kInterleaved);
  has_values_ = false;
}

uint8_t* Picture::replace_pixels() {
  owned_ = allocate(memory_.pixels, view_.height, view_.width);
  view_.pixels = owned_;
  return owned_;
}

}  // namespace trainer::data
