#include "datasets/mnist.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "datasets/files.h"
#include "trainer/error.h"

namespace trainer::datasets {
namespace {

namespace fs = std::filesystem;

constexpr int kMnistSide = 28;
constexpr size_t kMnistImageBytes = size_t{kMnistSide} * kMnistSide;
constexpr int kMnistClasses = 10;
constexpr size_t kMaxDecompressedBytes = size_t{1} << 30;
constexpr uint32_t kImagesMagic = 0x00000803;
constexpr uint32_t kLabelsMagic = 0x00000801;

struct SplitFiles {
  const char* images;
  const char* labels;
};
constexpr SplitFiles kTrainFiles{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
constexpr SplitFiles kValidationFiles{"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

// The content of a file in memory; copies of this object share it.
struct FileContent {
  fs::path path;
  std::shared_ptr<const void> owner;
  std::span<const uint8_t> bytes;
};

// The file in one of its two forms; the plain one if both exist.
std::optional<fs::path> find_form(const fs::path& folder, const std::string& name) {
  for (const auto& form : {name, name + ".gz"}) {
    if (is_there(folder / form)) return folder / form;
  }
  return std::nullopt;
}

// The names of all files in both forms.
std::vector<std::string> mnist_names() {
  std::vector<std::string> names;
  for (const auto& files : {kTrainFiles, kValidationFiles}) {
    for (const std::string name : {files.images, files.labels}) names.insert(names.end(), {name, name + ".gz"});
  }
  return names;
}

uint32_t big_endian(std::span<const uint8_t> bytes, size_t word) {
  uint32_t value = 0;
  for (const auto byte : bytes.subspan(4 * word, 4)) value = value << 8 | byte;
  return value;
}

// The required header of a file: the magic number, any number of items, and `lengths` for the other dimensions.
struct IdxFormat {
  uint32_t magic;
  std::vector<uint32_t> lengths;
  size_t header_bytes() const { return 4 * (2 + lengths.size()); }
};

// The size of the whole file according to its header, with which `bytes` begin.
size_t check_header(const MnistLayout& layout, const fs::path& path, std::span<const uint8_t> bytes, const IdxFormat& format) {
  if (big_endian(bytes, 0) != format.magic) {
    refuse_published_file(layout.source, path,
                          fmt::format("its magic number is {:#010x} instead of {:#010x}", big_endian(bytes, 0), format.magic));
  }
  const uint32_t num_items = big_endian(bytes, 1);
  size_t item_bytes = 1;
  for (size_t i = 0; i < format.lengths.size(); ++i) {
    const uint32_t length = big_endian(bytes, 2 + i);
    if (length != format.lengths[i]) {
      refuse_published_file(layout.source, path,
                            fmt::format("its images have {} {} instead of {}", length, i == 0 ? "rows" : "columns", format.lengths[i]));
    }
    item_bytes *= length;
  }
  if (num_items == 0) refuse_published_file(layout.source, path, "it contains 0 items");
  const size_t expected = format.header_bytes() + size_t{num_items} * item_bytes;
  if (bytes.size() > expected)
    refuse_published_file(layout.source, path, fmt::format("it has more than the {} bytes of {} items", expected, num_items));
  return expected;
}

// Maps the file, or decompresses it if its name ends in .gz. `check` is called repeatedly with the content so far, because a few kilobytes
// may decompress to gigabytes.
FileContent load_file(const fs::path& path, const std::function<void(std::span<const uint8_t>)>& check) {
  const FileAccess access("reading", path);
  try {
    const auto file = std::make_shared<const MappedFile>(path);
    if (path.extension() != ".gz") return {path, file, file->bytes()};
    const auto content = std::make_shared<std::vector<uint8_t>>();
    inflate_all(file->bytes(), Deflated::kGzip, [&](std::span<const uint8_t> part) {
      if (content->size() + part.size() > kMaxDecompressedBytes) {
        throw std::runtime_error("its decompressed content exceeds " + format_bytes(kMaxDecompressedBytes));
      }
      content->insert(content->end(), part.begin(), part.end());
      check(*content);
    });
    return {path, content, *content};
  } catch (const Error& error) {
    throw DataError(error.what());
  } catch (const std::runtime_error& reason) {
    throw DataError(fmt::format("cannot read {}: {}; replace the file with an undamaged copy", path.string(), reason.what()));
  }
}

FileContent load_idx(const MnistLayout& layout, const fs::path& folder, const std::string& name, const IdxFormat& format) {
  const auto path = find_form(folder, name);
  if (!path) refuse_published_file(layout.source, folder / name, "the file is missing, with and without .gz");
  const auto header_bytes = format.header_bytes();
  auto file = load_file(*path, [&](std::span<const uint8_t> begin) {
    if (begin.size() >= header_bytes) check_header(layout, *path, begin, format);
  });
  if (file.bytes.size() < header_bytes) {
    refuse_published_file(layout.source, *path,
                          fmt::format("it has {} bytes, fewer than the {} bytes of a header", file.bytes.size(), header_bytes));
  }
  const auto expected = check_header(layout, *path, file.bytes, format);
  if (file.bytes.size() != expected) {
    refuse_published_file(
        layout.source, *path,
        fmt::format("it has {} bytes instead of {} bytes for {} items", file.bytes.size(), expected, big_endian(file.bytes, 1)));
  }
  return file;
}

std::unique_ptr<data::Dataset> open_mnist(const MnistLayout& layout, const data::DatasetInfo& info, const fs::path& folder,
                                          data::Split split) {
  const auto& names = split == data::Split::kTrain ? kTrainFiles : kValidationFiles;
  const IdxFormat image_format{kImagesMagic, {kMnistSide, kMnistSide}};
  const IdxFormat label_format{kLabelsMagic, {}};
  const std::array files = {load_idx(layout, folder, names.images, image_format), load_idx(layout, folder, names.labels, label_format)};
  const auto pixels = files[0].bytes.subspan(image_format.header_bytes());
  const auto labels = files[1].bytes.subspan(label_format.header_bytes());
  if (pixels.size() != labels.size() * kMnistImageBytes) {
    refuse_published_file(
        layout.source, files[1].path,
        fmt::format("it has {} labels, but {} has {} images", labels.size(), files[0].path.string(), pixels.size() / kMnistImageBytes));
  }
  const auto wrong = std::ranges::find_if(labels, [](uint8_t label) { return label >= kMnistClasses; });
  if (wrong != labels.end()) {
    refuse_published_file(layout.source, files[1].path,
                          fmt::format("item {} (from 0) is the label {}, but the labels of {} are 0 to {}", wrong - labels.begin(), *wrong,
                                      layout.source.title, kMnistClasses - 1));
  }
  std::vector<ImagesInMemory::Image> images;
  for (size_t i = 0; i < labels.size(); ++i) images.push_back({&pixels[i * kMnistImageBytes], labels[i]});
  return std::make_unique<ImagesInMemory>(info, files[0].owner, std::move(images));
}

}  // namespace

const MnistLayout& mnist_layout() {
  static const MnistLayout layout{
      .class_names = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"},
      .source = {.title = "MNIST",
                 .url = "https://ossci-datasets.s3.amazonaws.com/mnist/",
                 .files = {{"train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"},
                           {"train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"},
                           {"t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"},
                           {"t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"}},
                 .folder = "MNIST/raw"},
  };
  return layout;
}

const MnistLayout& fashion_mnist_layout() {
  static const MnistLayout layout{
      .class_names = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"},
      .source = {.title = "FashionMNIST",
                 .url = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                 .files = {{"train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"},
                           {"train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"},
                           {"t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"},
                           {"t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"}},
                 .folder = "FashionMNIST/raw"},
  };
  return layout;
}

void MnistOptions::describe(KeyTable& keys) { describe_place(keys, "MNIST/raw or FashionMNIST/raw", " The files may end in .gz."); }

data::DatasetFactory mnist_factory(const MnistLayout& layout, const MnistOptions& options) {
  const data::DatasetInfo info{.shape = {1, kMnistSide, kMnistSide}, .num_classes = kMnistClasses, .class_names = layout.class_names};
  return published_factory(
      {.source = layout.source,
       .names = mnist_names(),
       .info = info,
       .sizes = {.train = 60'000, .validation = 10'000},
       .open = [&layout, info](const fs::path& folder, data::Split split) { return open_mnist(layout, info, folder, split); }},
      options);
}

void add_mnist(DatasetRegistry& registry) {
  const auto add = [&registry](const char* name, const MnistLayout& layout, const char* doc) {
    registry.add<MnistOptions>(name, doc, [&layout](const MnistOptions& options) { return mnist_factory(layout, options); });
  };
  add("mnist", mnist_layout(), "MNIST: 70,000 grey images of 28 x 28, handwritten digits.");
  add("fashion_mnist", fashion_mnist_layout(), "FashionMNIST: 70,000 grey images of 28 x 28, clothes in 10 classes.");
}

}  // namespace trainer::datasets
