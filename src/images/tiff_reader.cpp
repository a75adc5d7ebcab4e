#include "images/tiff_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace trainer::images {

TiffReader::TiffReader(std::span<const uint8_t> file) : file_(file), tiff_(nullptr, TIFFClose) {
  constexpr size_t kMemoryBesideFile = size_t{64} << 20;
  const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> options(TIFFOpenOptionsAlloc(), TIFFOpenOptionsFree);
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), static_cast<tmsize_t>(file.size() + kMemoryBesideFile));
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), &TiffReader::on_error, this);
  TIFFOpenOptionsSetWarningHandlerExtR(
      options.get(), [](TIFF*, void*, const char*, const char*, va_list) { return 1; }, nullptr);
  const auto do_not_write = [](thandle_t, void*, tmsize_t) -> tmsize_t { return 0; };
  const auto do_not_map = [](thandle_t, void**, toff_t*) { return 0; };
  tiff_.reset(TIFFClientOpenExt(
      "", "r", this, &TiffReader::read, do_not_write, &TiffReader::seek, [](thandle_t) { return 0; }, &TiffReader::size, do_not_map,
      [](thandle_t, void*, toff_t) {}, options.get()));
  if (!tiff_) fail();
}

std::span<const uint8_t> TiffReader::stored(uint32_t block) const {
  const auto begin = std::min<uint64_t>(TIFFGetStrileOffset(get(), block), file_.size());
  return file_.subspan(begin, std::min<uint64_t>(TIFFGetStrileByteCount(get(), block), file_.size() - begin));
}

void TiffReader::fail() const {
  throw std::runtime_error(fmt::format("it is damaged, or a kind of TIFF that this program does not read: {}",
                                       error_.empty() ? "its header contradicts itself" : error_));
}

int TiffReader::on_error(TIFF*, void* self, const char*, const char* format, va_list arguments) {
  auto& error = static_cast<TiffReader*>(self)->error_;
  if (!error.empty()) return 1;  // the first one names the cause
  std::array<char, 256> text{};
  std::vsnprintf(text.data(), text.size(), format, arguments);
  error = text.data();
  return 1;
}

tmsize_t TiffReader::read(thandle_t self, void* out, tmsize_t count) {
  auto& reader = *static_cast<TiffReader*>(self);
  const auto begin = std::min<uint64_t>(reader.position_, reader.file_.size());
  const auto length = std::min<uint64_t>(static_cast<uint64_t>(std::max<tmsize_t>(count, 0)), reader.file_.size() - begin);
  std::memcpy(out, reader.file_.data() + begin, length);
  reader.position_ = begin + length;
  return static_cast<tmsize_t>(length);
}

toff_t TiffReader::seek(thandle_t self, toff_t offset, int origin) {
  auto& reader = *static_cast<TiffReader*>(self);
  reader.position_ = offset + (origin == SEEK_CUR ? reader.position_ : origin == SEEK_END ? reader.file_.size() : 0);
  return reader.position_;
}

}  // namespace trainer::images
