#include "data/image_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "trainer/error.h"
#include "trainer/random.h"

namespace trainer::data {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using Bytes = std::vector<uint8_t>;

// The files of a folder in tests/golden, by name, without those with the golden pixels.
std::map<std::string, Bytes> files_of(const std::string& folder) {
  std::map<std::string, Bytes> found;
  for (const auto& entry : std::filesystem::directory_iterator(TRAINER_SOURCE_DIR "/tests/golden/" + folder)) {
    if (entry.path().extension() == ".ppm") continue;
    const auto text = read_file(entry.path());
    found.emplace(entry.path().filename().string(), Bytes(text.begin(), text.end()));
  }
  return found;
}

const std::map<std::string, Bytes>& golden_files() {
  static const auto files = files_of("images");
  return files;
}

Bytes golden_file(const std::string& name) { return golden_files().at(name); }

// The image as a binary PGM file.
std::string decode_to_pgm_of_16_bits(const Bytes& file) {
  DecodedMemory memory;
  const auto view = decode_image(file, {.mode = ImageMode::kGrey16}, memory);
  EXPECT_EQ(view.maximum, 65535);
  EXPECT_EQ(view.channels, 1);
  auto pgm = fmt::format("P5\n{} {}\n65535\n", view.width, view.height);
  for (const float value : memory.values) {
    const auto bits = static_cast<uint16_t>(value);
    EXPECT_EQ(bits, value);
    pgm += {static_cast<char>(bits >> 8), static_cast<char>(bits)};
  }
  return pgm;
}

// The image as a binary PPM file, or as a PGM file if it has 16 bits of grey.
std::string decode_to_ppm(const Bytes& file) {
  if (find_traits(file).mode == ImageMode::kGrey16) return decode_to_pgm_of_16_bits(file);
  Bytes pixels;
  const auto view = decode_image(file, pixels);
  EXPECT_EQ(view, ImageView::whole(pixels.data(), 3, view.height, view.width, PixelOrder::kInterleaved));
  EXPECT_EQ(pixels.size(), static_cast<size_t>(3 * view.height * view.width));
  std::ostringstream ppm;
  ppm << "P6\n" << view.width << " " << view.height << "\n255\n" << std::string(pixels.begin(), pixels.end());
  return ppm.str();
}

std::string golden_ppm(const std::string& name) { return read_file(TRAINER_SOURCE_DIR "/tests/golden/images/" + name + ".ppm"); }

void set_bytes(Bytes& file, size_t offset, const Bytes& bytes) {
  std::copy(bytes.begin(), bytes.end(), file.begin() + static_cast<std::ptrdiff_t>(offset));
}

// The golden file `name` with `bytes` at `offset`.
Bytes changed(const std::string& name, size_t offset, const Bytes& bytes) {
  auto file = golden_file(name);
  set_bytes(file, offset, bytes);
  return file;
}

Bytes cut(const std::string& name, size_t length) {
  auto file = golden_file(name);
  file.resize(length);
  return file;
}

// The offset of a marker of a JPEG file.
size_t find_marker(const Bytes& file, uint8_t marker) {
  const Bytes bytes = {0xFF, marker};
  return static_cast<size_t>(std::ranges::search(file, bytes).begin() - file.begin());
}

// A baseline JPEG file with this marker, height and width in the header of its frame.
Bytes changed_frame(uint8_t marker, uint16_t height, uint16_t width) {
  auto file = golden_file("baseline_420.jpg");
  const auto frame = find_marker(file, 0xC0);
  const auto high = [](uint16_t value) { return static_cast<uint8_t>(value >> 8); };
  const auto low = [](uint16_t value) { return static_cast<uint8_t>(value); };
  set_bytes(file, frame + 1, {marker});
  set_bytes(file, frame + 5, {high(height), low(height), high(width), low(width)});
  return file;
}

// The PNG file with the right checksum of its header.
Bytes with_checksum(Bytes file) {
  uint32_t value = ~0U;
  for (size_t i = 12; i < 29; ++i) {
    value ^= file[i];
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320U : 0);
  }
  value = ~value;
  const auto byte = [&](int shift) { return static_cast<uint8_t>(value >> shift); };
  set_bytes(file, 29, {byte(24), byte(16), byte(8), byte(0)});
  return file;
}

void expect_refused(const Bytes& file, const std::string& reason) {
  Bytes pixels;
  EXPECT_THAT([&] { decode_image(file, pixels); }, ThrowsMessage<std::runtime_error>(HasSubstr(reason)));
}

class ImageFile : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TRAINER_WITH_OPENCV) GTEST_SKIP() << "a build without OpenCV";
  }
};

TEST_F(ImageFile, PixelsEqualThoseOfPillow) {
  ASSERT_GE(golden_files().size(), 130U);
  for (const auto& [name, file] : golden_files()) EXPECT_TRUE(decode_to_ppm(file) == golden_ppm(name)) << name;
}

TEST_F(ImageFile, TheExtensionSelectsTheFormat) {
  check_image_extension("a.png");
  check_image_extension("a.jpg");
  for (const std::string path : {"a.txt", "a"}) {
    EXPECT_THAT([&] { check_image_extension(path); }, ThrowsMessage<UsageError>(HasSubstr("cannot write " + path + ": ")));
    EXPECT_THAT([&] { check_image_extension(path); }, ThrowsMessage<UsageError>(HasSubstr("; use a name that ends in .png or .jpg")));
  }
}

TEST_F(ImageFile, TextStaysInItsBox) {
  RgbImage image{.height = 40, .width = 60, .pixels = std::vector<uint8_t>(size_t{40} * 60 * 3, 255)};
  const Box box{.top = 8, .left = 10, .height = 24, .width = 40};
  draw_text(image, box, "a long caption");
  int num_drawn = 0;
  for (int i = 0; i < 40 * 60; ++i) {
    if (image.pixels[static_cast<size_t>(i) * 3] == 255) continue;
    ++num_drawn;
    EXPECT_TRUE(i / 60 >= 8 && i / 60 < 32 && i % 60 >= 10 && i % 60 < 50) << i / 60 << " " << i % 60;
  }
  EXPECT_GT(num_drawn, 50);
}

TEST_F(ImageFile, ThreadsDecodeAtTheSameTime) {
  std::vector<std::thread> threads;
  std::vector<size_t> num_equal(4);
  for (auto& equal : num_equal) {
    threads.emplace_back([&equal] {
      for (const auto& [name, file] : golden_files()) equal += decode_to_ppm(file) == golden_ppm(name) ? 1 : 0;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(num_equal, ::testing::Each(golden_files().size()));
}

TEST_F(ImageFile, MemoryOfAnotherImageIsUsedAgain) {
  Bytes pixels(std::size_t{1} << 16, 77);
  const auto* const memory = pixels.data();
  const auto view = decode_image(golden_file("baseline_420.jpg"), pixels);
  EXPECT_EQ(view.pixels, memory);
  EXPECT_EQ(pixels.size(), static_cast<size_t>(3 * view.height * view.width));
}

TEST_F(ImageFile, WhatIsNoImageIsRefused) {
  expect_refused({}, "it is empty");
  const std::string no_image = "it is not a supported image file (JPEG, PNG, WebP, BMP, TIFF, PGM or PPM)";
  for (const std::string text : {"x", "\xFF\xD8", "a text, and not an image", "P9 1 1 255 x"}) {
    expect_refused(Bytes(text.begin(), text.end()), no_image);
  }
  expect_refused(Bytes(1000, 0), no_image);
}

TEST_F(ImageFile, FormatsAndFormsThatAreNotReadAreNamed) {
  const std::map<std::string, std::string> forms = {
      {"animation.webp", "an animation"},
      {"float.pfm", "a PFM image, whose values are floating-point numbers"},
      {"grey.gif", "a GIF image"},
      {"lab.tif", "a TIFF image of Lab values with 8 bits each"},
      {"lzma.tif", "a TIFF image with the compression LZMA"},
      {"progressive_jpeg.tif", "a TIFF image with JPEG compression in several scans"},
      {"rgb.avif", "an AVIF image"},
      {"rgb.jp2", "a JPEG 2000 image"},
      {"signed_32_bits.tif", "a TIFF image of signed integers with 32 bits each"},
      {"ycbcr.tif", "a TIFF image of YCbCr values without JPEG compression with 8 bits each"},
  };
  auto files = files_of("refused_images");
  const std::map<std::string, std::string> forms_for_raw = {
      {"float.tif", "a TIFF image of floating-point numbers with 32 bits each"},
      {"planes_16_bits.tif", "a TIFF image of RGB values with 16 bits each in separate planes"},
  };
  for (const auto& [name, form] : forms_for_raw) {
    expect_refused(
        files.at(name),
        "it is " + form + ", which RGB cannot represent; train with dataset.mode: raw (in image_folder and csv), which keeps all values");
    files.erase(name);
  }
  ASSERT_EQ(files.size(), forms.size());
  for (const auto& [name, file] : files) {
    SCOPED_TRACE(name);
    expect_refused(file, "it is " + forms.at(name) + ", which is not supported; convert it to PNG or JPEG");
  }
  const std::map<std::string, std::string> beginnings = {
      {"an AVIF image",
       {"\0\0\0\x1C"
        "ftypavif",
        12}},
      {"a HEIC image",
       {"\0\0\0\x18"
        "ftypheic",
        12}},
      {"a JPEG XL image", "\xFF\x0A more"},
      {"a JPEG 2000 image", "\xFF\x4F\xFF\x51 more"},
      {"a Photoshop image", "8BPS more"},
      {"a PBM image", "P4 1 1\n999 "},
      {"a PGM image of decimal numbers", "P2 1 1 255\n9"},
  };
  for (const auto& [name, text] : beginnings) expect_refused(Bytes(text.begin(), text.end()), "it is " + name + ", which");
  for (const std::string page : {"<!DOCTYPE html><html>", "<!doctype html>", "<html>"}) {
    expect_refused(Bytes(page.begin(), page.end()), "it is an HTML page, not an image: a server probably sent it");
  }
}

TEST_F(ImageFile, DamagedAndUnusualJpegsAreRefused) {
  expect_refused(changed_frame(0xC3, 21, 33), "it is damaged, or a kind of JPEG that is not supported: Unsupported JPEG process");
  expect_refused(changed_frame(0xC0, 60000, 60000), "its size of 60000 x 60000 pixels is too large: at most 65535 in each direction");
  expect_refused(changed_frame(0xC0, 0, 33), "it is damaged");
  // The file is refused before memory for 256 million pixels is allocated.
  for (const auto marker : {uint8_t{0xC0}, uint8_t{0xC2}}) expect_refused(changed_frame(marker, 16000, 16000), "the file ends too early");
}

TEST_F(ImageFile, DamagedAndUnusualPngsAreRefused) {
  expect_refused(changed("mode_rgb.png", 29, {0, 0, 0, 0}), "it is damaged: a checksum is wrong");
  expect_refused(changed("mode_rgb.png", 60, {0, 0, 0, 0}), "it is damaged: a checksum is wrong");
  expect_refused(changed("mode_rgb.png", 12, {'I', 'D', 'A', 'T'}), "it is damaged: it does not begin with a header");
  expect_refused(changed("mode_rgb.png", 16, {0, 1, 0, 0}), "its size of 65536 x 21 pixels is too large");
  expect_refused(changed("mode_rgb.png", 16, {0, 0, 0, 0}), "it is damaged: its size is 0 x 21 pixels");
  expect_refused(with_checksum(changed("mode_rgb.png", 16, {0, 0, 0x3F, 0, 0, 0, 0x3F, 0})),
                 "it is damaged: it does not have enough data for 16128 x 16128 pixels");
}

TEST_F(ImageFile, DamagedAndUnusualWebpsAreRefused) {
  expect_refused(changed("lossy_rgba.webp", 20, {0x12}), "it is an animation");
  expect_refused(changed("lossy_rgba.webp", 24, {0xFF, 0xFF, 0, 0xFF, 0xFF, 0}), "its size of 65536 x 65536 pixels is too large");
  expect_refused(changed("lossy_rgb.webp", 23, {0}), "it is damaged");
}

TEST_F(ImageFile, DamagedAndUnusualBmpsAreRefused) {
  expect_refused(changed("rgb.bmp", 14, {13}), "it is a BMP image with a header of 13 bytes, which is not supported");
  expect_refused(changed("rgb.bmp", 18, {0, 0, 0, 0}), "it is damaged: its size is 0 x 21 pixels");
  expect_refused(changed("rgb.bmp", 18, {0, 0, 0, 1}), "its size of 16777216 x 21 pixels is too large");
  expect_refused(changed("rgb.bmp", 30, {4}), "it is a BMP image of 24 bits with compression 4, which is not supported");
  expect_refused(changed("rgb.bmp", 28, {2}), "it is a BMP image of 2 bits with compression 0, which is not supported");
  expect_refused(changed("masks_32_bits.bmp", 57, {1}), "it is a BMP image of 32 bits with compression 3, which is not supported");
  expect_refused(changed("palette.bmp", 46, {1, 2}), "it is damaged: its palette has 513 colours, but at most 256 are possible");
  expect_refused(changed("palette.bmp", 10, {54, 0}), "it is damaged: its pixels overlap its header");
}

TEST_F(ImageFile, DamagedAndUnusualPnmsAreRefused) {
  const auto refuse = [](const std::string& text, const std::string& reason) { expect_refused(Bytes(text.begin(), text.end()), reason); };
  refuse("P5 20000 20000 255\n", "its size of 20000 x 20000 pixels is too large");
  for (const auto* format : {"P5", "P6"}) refuse(std::string(format) + " 16000 16000 255\n1", "the file ends too early");
  refuse("P5 0 1 255\n", "it is damaged: its size is 0 x 1 pixels");
  refuse("P5 1 1 0\nx", "it is damaged: its maximum value is 0, but must be 1 to 65535");
  refuse("P5 1 1 65536\nxx", "it is damaged: its maximum value is 65536");
  for (const auto* number : {"-1", "x", "1.5", "1234567890x"}) {
    refuse("P5 1 " + std::string(number) + " 255\n", "it is damaged: it has characters other than digits where a number is expected");
  }
  for (const std::string number : {"9999999999", "12345678901"}) {
    refuse("P5 1 " + number + " 255\n", "it is damaged: the number that begins with " + number + " is too large or has too many digits");
  }
}

// The golden file `name`, a little-endian TIFF file, with `value` in the field `tag`, which it must have.
Bytes changed_field(const std::string& name, uint16_t tag, uint32_t value) {
  auto file = golden_file(name);
  const auto at = [&](size_t offset) { return static_cast<uint16_t>(file.at(offset) | file.at(offset + 1) << 8); };
  size_t entry = at(4) + 2U;
  while (at(entry) != tag) entry += 12;
  const auto byte = [&](int shift) { return static_cast<uint8_t>(value >> shift); };
  set_bytes(file, entry + 2, {4, 0, 1, 0, 0, 0, byte(0), byte(8), byte(16), byte(24)});
  return file;
}

TEST_F(ImageFile, DamagedAndUnusualTiffsAreRefused) {
  // The file is refused before memory for the pixels is allocated.
  expect_refused(changed_field("deflate.tif", 256, 65536), "its size of 65536 x 13 pixels is too large");
  expect_refused(changed_field("rgb.tif", 256, 1U << 31), "its size of 2147483648 x 13 pixels is too large");
  expect_refused(changed_field("deflate.tif", 257, 0), "it is damaged");
  expect_refused(changed_field("tiles.tif", 257, 1U << 31), "it is damaged");
  expect_refused(changed_field("tiles.tif", 322, 65520 * 32), "its tiles of 2096640 x 16 pixels are too large");
  expect_refused(changed_field("tiles.tif", 323, 1U << 30), "its tiles of 16 x 1073741824 pixels are too large");
  expect_refused(changed_field("grey.tif", 258, 12), "it is a TIFF image of grey values with 12 bits each, which");
  expect_refused(changed_field("grey.tif", 262, 32803), "it is a TIFF image of colours with photometric interpretation 32803");
  expect_refused(changed_field("grey.tif", 259, 34712), "it is a TIFF image with the compression 34712, which");
  expect_refused(changed_field("grey_alpha.tif", 338, 1), "it is a TIFF image with 2 samples per pixel, 1 of which are not colours, which");
  for (const size_t missing : {1, 10, 100}) expect_refused(cut("rgb.tif", golden_file("rgb.tif").size() - missing), "it is damaged");
}

// A progressive JPEG file whose last scan is repeated `num_more` times, and whose header states the image size `size`.
Bytes with_more_scans(int num_more, const Bytes& size) {
  auto file = golden_file("progressive_grey.jpg");
  set_bytes(file, find_marker(file, 0xC2) + 5, size);
  const Bytes marker = {0xFF, 0xDA};
  const auto begin = std::ranges::find_end(file, marker).begin();
  const Bytes scan(begin, file.end() - 2);
  for (int i = 0; i < num_more; ++i) file.insert(file.end() - 2, scan.begin(), scan.end());
  return file;
}

TEST_F(ImageFile, JpegsOfTooManyScansAreRefused) {
  const Bytes size = {0, 21, 0, 33};
  EXPECT_NO_THROW(decode_to_ppm(with_more_scans(90, size)));
  const std::string reason = "it has more than 100 scans, the limit for 33 x 21 pixels; save it as baseline JPEG or PNG";
  expect_refused(with_more_scans(100, size), reason);
  Bytes pixels;
  EXPECT_THAT([&] { decode_part(with_more_scans(100, size), {0, 0, 5, 5}, {}, pixels); }, ThrowsMessage<std::runtime_error>(reason));
}

TEST_F(ImageFile, FilesThatAreCutOffAreRefused) {
  ::testing::internal::CaptureStderr();
  for (const auto& [name, file] : golden_files()) {
    // Without their last bytes, these files may still contain the whole image.
    if (name == "more_after_end.jpg" || name.ends_with(".tif")) continue;
    for (size_t length = 20; length < file.size(); length += length + 20 < file.size() ? 7 : 1) {
      Bytes pixels;
      EXPECT_THROW(decode_image(cut(name, length), pixels), std::runtime_error) << name << ", " << length << " bytes";
    }
  }
  for (const auto* name :
       {"baseline_420.jpg", "progressive.jpg", "mode_rgb.png", "interlaced.png", "lossy_rgb.webp", "lossless_rgba.webp", "rgb.bmp"}) {
    for (const size_t missing : {1, 10, 100}) expect_refused(cut(name, golden_file(name).size() - missing), "the file ends too early");
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(ImageFile, DamageAnywhereIsRefusedOrGivesAnImage) {
  ::testing::internal::CaptureStderr();
  CounterRandom random(1, 2);
  for (const auto& [name, file] : golden_files()) {
    for (int i = 0; i < 100; ++i) {
      const auto offset = random.next_below(static_cast<uint32_t>(file.size()));
      const auto byte = static_cast<uint8_t>(file[offset] ^ (1 + random.next_below(255)));
      SCOPED_TRACE(::testing::Message() << name << ", byte " << offset << " is " << int{byte});
      try {
        decode_to_ppm(changed(name, offset, {byte}));
      } catch (const std::runtime_error& error) {
        EXPECT_STRNE(error.what(), "");
      }
    }
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(ImageFileWithoutOpenCv, EveryCallThrows) {
  if (TRAINER_WITH_OPENCV) GTEST_SKIP() << "a build with OpenCV";
  Bytes pixels;
  EXPECT_THAT([&] { decode_image(golden_file("grey.jpg"), pixels); }, ThrowsMessage<UsageError>(HasSubstr("image files need OpenCV")));
}

// The files that are decoded in parts, by name.
std::map<std::string, Bytes> larger_jpegs() {
  std::map<std::string, Bytes> found;
  for (const auto& entry : std::filesystem::directory_iterator(TRAINER_SOURCE_DIR "/tests/golden/jpegs")) {
    const auto text = read_file(entry.path());
    found.emplace(entry.path().stem().string(), Bytes(text.begin(), text.end()));
  }
  return found;
}

Box random_box(const Box& size, CounterRandom& random) {
  const auto below = [&](int bound) { return static_cast<int>(random.next_below(static_cast<uint32_t>(bound))); };
  Box box{.top = below(size.height), .left = below(size.width)};
  box.height = 1 + below(size.height - box.top);
  box.width = 1 + below(size.width - box.left);
  return box;
}

TEST_F(ImageFile, PartsOfAJpegEqualThoseOfTheWhole) {
  auto files = larger_jpegs();
  ASSERT_EQ(files.size(), 7U);
  for (const auto& [name, file] : golden_files()) {
    if (name.ends_with(".jpg")) files.emplace(name, file);
  }
  Bytes whole_pixels;
  Bytes part_pixels;
  CounterRandom random(3, 4);
  for (const auto& [name, file] : files) {
    const auto whole = decode_image(file, whole_pixels);
    const auto size = find_size(file, {});
    ASSERT_TRUE(size) << name;
    ASSERT_EQ((std::pair{size->height, size->width}), (std::pair{whole.height, whole.width})) << name;
    for (int i = 0; i < 150; ++i) {
      const auto box = i == 0 ? *size : random_box(*size, random);
      const auto part = decode_part(file, box, {}, part_pixels);
      ASSERT_EQ((std::pair{part.window_height, part.window_width}), (std::pair{box.height, box.width}));
      ASSERT_EQ(part_pixels.size(), static_cast<size_t>(3 * part.height * part.width));
      const auto row_of = [&](const ImageView& view, int y, int x) {
        return view.pixels + 3 * (static_cast<ptrdiff_t>(y) * view.width + x);
      };
      for (int y = 0; y < box.height; ++y) {
        ASSERT_EQ(
            std::memcmp(row_of(part, part.top + y, part.left), row_of(whole, box.top + y, box.left), static_cast<size_t>(3 * box.width)), 0)
            << name << ", " << box.height << " x " << box.width << " pixels at " << box.top << ", " << box.left << ", row " << y;
      }
    }
  }
}

TEST_F(ImageFile, PartsOfADamagedJpegAreReadOrRefused) {
  CounterRandom random(5, 6);
  Bytes pixels;
  int num_refused = 0;
  for (const auto& [name, good] : larger_jpegs()) {
    const auto size = find_size(good, {}).value();
    for (int i = 0; i < 300; ++i) {
      auto file = good;
      if (i % 2 == 0) file.resize(random.next_below(static_cast<uint32_t>(file.size())));
      if (i % 2 == 1) file[random.next_below(static_cast<uint32_t>(file.size()))] = static_cast<uint8_t>(random.next_below(256));
      try {
        const auto found = find_size(file, {});
        if (!found || found->height != size.height || found->width != size.width) continue;
        const auto box = random_box(size, random);
        EXPECT_EQ(decode_part(file, box, {}, pixels).window_height, box.height);
      } catch (const std::runtime_error&) {
        ++num_refused;
      }
    }
  }
  EXPECT_GT(num_refused, 500);
}

TEST_F(ImageFile, OnlyAJpegHasPartsThatCanBeDecoded) {
  EXPECT_FALSE(find_size(golden_file("rgb.bmp"), {}));
  EXPECT_THAT([] { find_size(cut("baseline_420.jpg", 10), {}); }, ThrowsMessage<std::runtime_error>("the file ends too early"));
}

// EXIF data with that orientation, after another entry.
Bytes exif(uint8_t orientation, bool is_big_endian) {
  if (is_big_endian) {
    return {'M', 'M', 0, 42, 0,  0, 0, 8, 0, 2, 1, 0, 0,           3, 0, 0, 0, 1, 0,
            7,   0,   0, 1,  18, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0, 0, 0, 0, 0};
  }
  return {'I', 'I', 42, 0, 8, 0, 0, 0, 2, 0, 0, 1, 3, 0, 1, 0, 0, 0, 7, 0, 0, 0, 18, 1, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0, 0, 0, 0, 0};
}

Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Bytes text(std::string_view characters) { return {characters.begin(), characters.end()}; }

// A JPEG file with these EXIF data after the first marker.
Bytes jpeg_with(const Bytes& data) {
  const auto file = golden_file("baseline_444.jpg");
  return joined(
      {{0xFF, 0xD8, 0xFF, 0xE1, 0, static_cast<uint8_t>(data.size() + 8)}, text({"Exif\0\0", 6}), data, {file.begin() + 2, file.end()}});
}

TEST_F(ImageFile, TheOrientationIsFoundWhereverItStands) {
  EXPECT_EQ(find_traits(golden_file("baseline_444.jpg")).orientation, 1);
  for (const bool is_big_endian : {false, true}) {
    for (const uint8_t orientation : Bytes{1, 3, 6, 8}) {
      const auto data = exif(orientation, is_big_endian);
      const auto size = static_cast<uint8_t>(data.size());
      EXPECT_EQ(find_traits(jpeg_with(data)).orientation, orientation);
      const auto png = golden_file("mode_rgb.png");
      // The first chunk ends at byte 33. The checksum of the EXIF chunk is wrong, but is not compared.
      const auto png_with =
          joined({{png.begin(), png.begin() + 33}, {0, 0, 0, size}, text("eXIf"), data, {1, 2, 3, 4}, {png.begin() + 33, png.end()}});
      EXPECT_EQ(find_traits(png_with).orientation, orientation);
      const auto webp = golden_file("lossy_rgb.webp");
      EXPECT_EQ(find_traits(joined({webp, text("EXIF"), {size, 0, 0, 0}, data})).orientation, orientation);
      EXPECT_EQ(find_traits(data).orientation, 1) << "the decoder applies the orientation of a TIFF file";
    }
  }
}

TEST_F(ImageFile, SixteenBitsOfGreyDoNotBecomeWhite) {
  for (const char* name : {"grey_16_bits.png", "grey_16_bits.tif", "grey_maximum_1023.pnm"}) {
    expect_refused(golden_file(name),
                   "it is a 16-bit grey image, and all values above 255 would become white; train with dataset.mode: grey16");
  }
}

// Throws like decode_image().
float first_value(const Bytes& file, const ImageDecoding& decoding) {
  DecodedMemory memory;
  return *decode_image(file, decoding, memory).values;
}

TEST_F(ImageFile, OtherDepthsThanThoseOfTheModeAreRefused) {
  const auto expect = [](const Bytes& file, const ImageDecoding& decoding, const std::string& reason) {
    EXPECT_THAT([&] { first_value(file, decoding); }, ThrowsMessage<std::runtime_error>(HasSubstr(reason)));
  };
  const ImageDecoding grey16{.mode = ImageMode::kGrey16};
  for (const char* name : {"mode_rgb.png", "grey.tif", "grey.pnm", "baseline_420.jpg", "rgb_16_bits.tif", "rgb.bmp"}) {
    expect(golden_file(name), grey16, "it is not a 16-bit grey image (PNG, TIFF or PGM), which dataset.mode: grey16 requires");
  }
  expect({}, grey16, "it is empty");
  const ImageDecoding raw{.mode = ImageMode::kRaw, .channels = 2};
  expect(golden_file("mode_rgb.png"), raw, "it is not a TIFF or .npy file, which dataset.mode: raw requires");
  expect(golden_file("grey_16_bits.tif"), raw, "it has 1 channel, but the first readable image of the data set has 2");
  expect(golden_file("one_bit.tif"), raw, "a TIFF image of unsigned integers with 1 bits each");
  expect(files_of("refused_images").at("signed_32_bits.tif"), raw, "a TIFF image of signed integers with 32 bits each");
  expect(files_of("refused_images").at("lzma.tif"), raw, "a TIFF image with the compression LZMA; save it with LZW or Deflate");
  const ImageDecoding numbers{.mode = ImageMode::kRaw, .channels = 1};
  expect(golden_file("grey_16_bits.tif"), numbers,
         "it has values of 16 bits, but the first readable image of the data set has signed or floating-point values; save all images with "
         "the same type of values");
}

// A .npy file. `type`, `shape` and `order`: as NumPy writes them in the header.
Bytes npy(const std::string& type, const std::string& shape, const Bytes& data, const std::string& order = "False") {
  const auto header = fmt::format("{{'descr': {}, 'fortran_order': {}, 'shape': {}, }}\n", type, order, shape);
  return joined({text("\x93NUMPY"), {1, 0, static_cast<uint8_t>(header.size()), 0}, text(header), data});
}

TEST_F(ImageFile, ArraysOfNumPyAreReadOrRefused) {
  const ImageDecoding raw{.mode = ImageMode::kRaw};
  EXPECT_EQ(first_value(npy("'<u2'", "(1, 2)", {1, 2, 3, 4}), raw), 0x0201);
  EXPECT_EQ(first_value(npy("'>u2'", "(1, 2, 1)", {1, 2, 3, 4}), raw), 0x0102);
  EXPECT_EQ(first_value(npy("'<f4'", "(1, 1)", {0, 0, 0x80, 0x3F}), raw), 1);
  const std::vector<std::pair<Bytes, std::string>> refused = {
      {npy("'<u2'", "(1, 2)", {1, 2, 3}), "the file ends too early"},
      {npy("'<u4'", "(1, 1)", {1, 2, 3, 4}),
       "its array has the unsupported data type <u4; save it as uint8, uint16, int16, float32 or float64"},
      {npy("'<u2'", "(2,)", {1, 2, 3, 4}), "its array has 1 dimensions; save it as [height, width] or [height, width, channels]"},
      {npy("[('a', '<u2')]", "(1, 1)", {1, 2}), "it is a structured array (several named fields); save the fields as the channels"},
      {npy("'<u2'", "(1, 1, 0)", {}), "it has 0 channels of 1 x 1 pixels, but 1 to 268 million values in total are supported"},
      {npy("'<u2'", "(0, 1)", {}), "its size is 1 x 0 pixels"},
      {npy("'|u1'", "(40000, 40000)", {}), "its size of 40000 x 40000 pixels is too large"},
      {npy("'|u1'", "(1, 1, x)", {1}), "it is damaged: its header is not that of a NumPy array"},
      {npy("'<u2'", "(1, 1", {1}), "it is damaged: its header is not that of a NumPy array"},
      {text("\x93NUMPY"), "the file ends too early"},
      {npy("'<f4'", "(1, 1)", {0, 0, 0x80, 0x7F}), "it has values that are not finite (NaN or infinity)"},
  };
  for (const auto& [file, reason] : refused) {
    EXPECT_THAT([&] { first_value(file, raw); }, ThrowsMessage<std::runtime_error>(HasSubstr(reason)));
  }
  expect_refused(npy("'<f4'", "(1, 1)", {0, 0, 0, 0}), "it is a NumPy array, which RGB cannot represent; train with dataset.mode: raw");
}

// An uncompressed TIFF file with one row of float64 values and, per further image, its NewSubfileType.
Bytes tiff(const std::vector<double>& values, const std::vector<uint8_t>& further_images = {}) {
  Bytes file = joined({text("II"), {42, 0, 0, 0, 0, 0}});
  const auto append = [&file](uint64_t value, size_t num_bytes) {
    for (size_t i = 0; i < num_bytes; ++i) file.push_back(static_cast<uint8_t>(value >> (8 * i)));
  };
  const auto pixels = file.size();
  for (const auto value : values) append(std::bit_cast<uint64_t>(value), sizeof value);
  auto images = further_images;
  images.insert(images.begin(), 0);
  size_t link = 4;  // where the position of the next image is stored
  for (const auto kind : images) {
    const auto position = static_cast<uint32_t>(file.size());
    std::memcpy(&file[link], &position, sizeof position);
    const std::vector<std::pair<uint16_t, size_t>> fields = {
        {254, kind}, {256, values.size()}, {257, 1}, {258, 64}, {259, 1},
        {262, 1},    {273, pixels},        {277, 1}, {278, 1},  {279, values.size() * sizeof(double)},
        {339, 3}};
    append(fields.size(), 2);
    for (const auto& [tag, value] : fields) {
      append(tag, 2);
      append(4, 2);  // type: a 32-bit integer
      append(1, 4);
      append(value, 4);
    }
    link = file.size();
    append(0, 4);
  }
  return file;
}

TEST_F(ImageFile, Float64ValuesThatDifferInDigitsThatFloat32LacksAreRefused) {
  const ImageDecoding raw{.mode = ImageMode::kRaw};
  const auto file_of = [](const std::vector<double>& values, bool is_tiff) {
    Bytes bytes(sizeof(double) * values.size());
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return is_tiff ? tiff(values) : npy("'<f8'", fmt::format("(1, {})", values.size()), bytes);
  };
  for (const bool is_tiff : {false, true}) {
    for (const std::vector<double>& values :
         {std::vector<double>{0.1, 0.7}, {273.15, 300.25}, {1e8, 1e9}, {1.7e9, 1.7e9}, {0.3, 0.1 + 0.2}, {0, 1e-40}, {1200, 1200.002}}) {
      EXPECT_EQ(first_value(file_of(values, is_tiff), raw), static_cast<float>(values[0])) << is_tiff << " " << values[0];
    }
    const auto close = file_of({1.7e9, 1.7e9 + 30, 1.7e9 + 60.5}, is_tiff);
    EXPECT_EQ(first_value(close, {.mode = ImageMode::kRaw, .channels = 1}), 1.7e9F) << "not the first image";
    EXPECT_THAT([&] { first_value(close, raw); },
                ThrowsMessage<std::runtime_error>(
                    HasSubstr("its float64 values from 1700000000 to 1700000060.5 would be rounded to multiples of 1.2e+02 "
                              "in float32, with which images are computed; subtract 1700000000 from the values of all files")));
  }
}

TEST_F(ImageFile, FurtherPagesAndChannelsFirstAreFound) {
  EXPECT_EQ(find_traits(golden_file("grey.tif")).pages, 1);
  EXPECT_EQ(find_traits(tiff({1})).pages, 1);
  EXPECT_EQ(find_traits(tiff({1}, {0, 2})).pages, 3);
  EXPECT_EQ(find_traits(tiff({1}, {1, 4})).pages, 1) << "a smaller copy and a mask";
  for (const auto& [shape, expected] : std::map<std::string, bool>{{"(3, 40, 40)", true},
                                                                   {"(13, 64, 64)", true},
                                                                   {"(40, 40, 3)", false},
                                                                   {"(40, 40)", false},
                                                                   {"(2, 3, 7)", false},
                                                                   {"(64, 64, 64)", false}}) {
    EXPECT_EQ(find_traits(npy("'<f4'", shape, {})).are_channels_first, expected) << shape;
  }
}

TEST_F(ImageFile, TheModeThatAnImageNeedsIsFound) {
  const std::vector<std::pair<std::string, ImageMode>> modes = {
      {"grey_16_bits.png", ImageMode::kGrey16},
      {"grey_16_bits.tif", ImageMode::kGrey16},
      {"grey_16_bits_big_endian.tif", ImageMode::kGrey16},
      {"grey_maximum_65535.pnm", ImageMode::kGrey16},
      {"rgb_16_bits.png", ImageMode::kRgb},
      {"rgb_16_bits.tif", ImageMode::kRgb},
      {"grey_alpha_16_bits.png", ImageMode::kRgb},
      {"cmyk_16_bits.tif", ImageMode::kRgb},
      {"grey.tif", ImageMode::kRgb},
      {"grey_alpha.tif", ImageMode::kRgb},
      {"baseline_420.jpg", ImageMode::kRgb},
  };
  for (const auto& [name, mode] : modes) EXPECT_EQ(find_traits(golden_file(name)).mode, mode) << name;
  EXPECT_EQ(find_traits(files_of("refused_images").at("float.tif")).mode, ImageMode::kRaw);
  EXPECT_EQ(find_traits(files_of("refused_images").at("planes_16_bits.tif")).mode, ImageMode::kRaw);
  EXPECT_EQ(find_traits(npy("'<f4'", "(2, 3, 7)", {})).mode, ImageMode::kRaw);
}

TEST_F(ImageFile, SixteenBitsAreFound) {
  EXPECT_EQ(find_traits(golden_file("grey_16_bits.png")).bits, 16);
  EXPECT_EQ(find_traits(golden_file("mode_rgb.png")).bits, 8);
  EXPECT_EQ(find_traits(text("P5\n# a comment\n2 1\n65535\n....")).bits, 16);
  EXPECT_EQ(find_traits(text("P5\n# a comment\r2 1\n65535\n....")).bits, 16);
  EXPECT_EQ(find_traits(text("P6 1 1 255 ...")).bits, 8);
  for (const char* name : {"grey_16_bits.tif", "grey_16_bits_big_endian.tif", "rgb_16_bits.tif", "cmyk_16_bits.tif"}) {
    EXPECT_EQ(find_traits(golden_file(name)).bits, 16) << name;
  }
}

TEST_F(ImageFile, TraitsOfDamagedFilesAreReadWithinTheFile) {
  CounterRandom random(7, 8);
  const auto data = exif(6, true);
  const auto jpeg = jpeg_with(data);
  const size_t end_of_data = 12 + data.size();
  for (size_t length = 0; length < jpeg.size(); ++length) {
    EXPECT_EQ(find_traits({jpeg.begin(), jpeg.begin() + static_cast<ptrdiff_t>(length)}).orientation, length < end_of_data ? 1 : 6)
        << length;
  }
  for (const auto& good : {jpeg, exif(6, false), golden_file("grey_16_bits.png"), golden_file("lossy_rgb.webp"), golden_file("grey.pnm"),
                           npy("'<f4'", "(2, 3, 7)", {1})}) {
    for (int i = 0; i < 500; ++i) {
      // The file has memory of its own, so that the sanitizers detect a read beyond its end.
      Bytes file(good.begin(), good.begin() + random.next_below(static_cast<uint32_t>(std::min<size_t>(good.size(), 200))));
      if (!file.empty()) file[random.next_below(static_cast<uint32_t>(file.size()))] = static_cast<uint8_t>(random.next_below(256));
      file.shrink_to_fit();
      EXPECT_NO_THROW(find_traits(file));
    }
  }
}

}  // namespace
}  // namespace trainer::data
