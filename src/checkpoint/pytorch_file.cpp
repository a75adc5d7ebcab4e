#include "checkpoint/pytorch_file.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <libdeflate.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "base/zip.h"
#include "checkpoint/pickler.h"
#include "checkpoint/refusal.h"
#include "checkpoint/unpickler.h"
#include "trainer/checkpoint.h"

namespace trainer::checkpoint {
namespace {

constexpr std::string_view kProgram = "data.pkl";

ZipDirectory read_directory(std::span<const uint8_t> bytes, const std::string& source) {
  try {
    return ZipDirectory(bytes);
  } catch (const std::runtime_error& reason) {
    refuse_damaged(source, reason.what());
  }
}

class TorchZip {
 public:
  TorchZip(std::span<const uint8_t> bytes, const std::string& source)
      : source_(source), budget_(bytes.size(), source), directory_(read_directory(bytes, source)) {
    budget_.take(directory_.entries().size(), sizeof(ZipEntry));
  }

  state::Tree read() {
    find_folder();
    check_byteorder();
    check_version();
    const auto program = content_of(*directory_.find(entry_name(kProgram)));
    const auto load = [this](std::string_view key, uint64_t num_elements, size_t element_size) {
      return load_storage(key, num_elements * element_size);
    };
    return unpickle(program, fmt::format("{}: {}", source_, kProgram), StorageIds::kWhole, load, budget_).tree;
  }

 private:
  std::string entry_name(std::string_view name) const { return fmt::format("{}/{}", folder_, name); }

  // Finds the archive's folder with data.pkl; the other entries that are read are in the same folder.
  void find_folder() {
    for (const auto& entry : directory_.entries()) {
      const auto slash = entry.name.find('/');
      if (slash == std::string_view::npos || entry.name.substr(slash + 1) != kProgram) continue;
      if (!folder_.empty()) refuse(source_, "contains data.pkl in two folders", "give a file that torch.save wrote");
      folder_ = entry.name.substr(0, slash);
    }
    if (folder_.empty())
      refuse(source_, "is a zip archive, but not a PyTorch file: it does not contain data.pkl", "give a file that torch.save wrote");
    const auto code = entry_name("code/");
    if (directory_.find(entry_name("constants.pkl")) != nullptr ||
        std::ranges::any_of(directory_.entries(), [&](const ZipEntry& entry) { return entry.name.starts_with(code); })) {
      refuse(source_, "is a TorchScript archive (written by torch.jit.save, or by torch::save in C++)",
             "save the module's state_dict with Python's torch.save");
    }
  }

  void check_byteorder() {
    const auto* entry = directory_.find(entry_name("byteorder"));
    // Older files do not have this entry and are taken to be little-endian.
    if (entry == nullptr) return;
    const auto order = text(*entry);
    if (order != "little") {
      refuse(source_, fmt::format("contains numbers in the byte order {}, not \"little\"", in_quotes(order)),
             "load and save it again on an x86 or ARM machine");
    }
  }

  // The supported versions are those of caffe2/serialize/versions.h.
  void check_version() {
    constexpr int kFirstVersion = 1;
    constexpr int kLastVersion = 10;
    const auto* entry = directory_.find(entry_name("version"));
    if (entry == nullptr) refuse_damaged(source_, "does not state the version of its format");
    const auto content = text(*entry);
    std::string_view digits = content;
    if (digits.ends_with('\n')) digits.remove_suffix(1);
    const auto version = parse_number<int>(digits);
    if (!version || *version < kFirstVersion || *version > kLastVersion) {
      refuse(source_,
             fmt::format("has version {} of PyTorch's format; only {} to {} are supported", in_quotes(digits), kFirstVersion, kLastVersion),
             "save it with an older PyTorch");
    }
  }

  std::vector<uint8_t> content_of(const ZipEntry& entry) {
    budget_.take(entry.num_content);
    std::vector<uint8_t> content(entry.num_content);
    copy(entry, content.data());
    return content;
  }
  std::string text(const ZipEntry& entry) {
    const auto content = content_of(entry);
    return {content.begin(), content.end()};
  }

  torch::Storage load_storage(std::string_view key, uint64_t size) {
    budget_.take(2, key.size());
    const auto* entry = directory_.find(fmt::format("{}/data/{}", folder_, key));
    if (entry == nullptr) refuse_damaged(source_, fmt::format("does not contain storage {}, which a tensor needs", in_quotes(key)));
    if (entry->num_content != size) {
      refuse_damaged(source_,
                     fmt::format("contains {} bytes for storage {}, but a tensor needs {}", entry->num_content, in_quotes(key), size));
    }
    const auto known = storages_.find(entry);
    if (known != storages_.end()) return known->second;
    auto storage = allocate_storage(size, budget_);
    copy(*entry, static_cast<uint8_t*>(storage.mutable_data()));
    storages_.emplace(entry, storage);
    return storage;
  }

  // Copies the content of an entry to `destination`, which has `entry.num_content` bytes, and compares its checksum.
  void copy(const ZipEntry& entry, uint8_t* destination) const {
    // Works in blocks, so that a block is still in the processor's cache when it is copied after its checksum.
    constexpr size_t kBlockSize = size_t{128} << 10;
    check_method(entry);
    if (entry.method == ZipEntry::kDeflated) return inflate(entry, destination);
    uint32_t crc = 0;
    for (auto rest = directory_.stored(entry); !rest.empty();) {
      const auto block = rest.first(std::min(rest.size(), kBlockSize));
      crc = libdeflate_crc32(crc, block.data(), block.size());
      std::memcpy(destination, block.data(), block.size());
      destination += block.size();
      rest = rest.subspan(block.size());
    }
    if (crc != entry.crc) refuse_checksum(entry);
  }

  void inflate(const ZipEntry& entry, uint8_t* destination) const {
    const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> decompressor(libdeflate_alloc_decompressor(),
                                                                                                         &libdeflate_free_decompressor);
    TORCH_CHECK(decompressor, "out of memory for a decompressor");
    const auto result = libdeflate_deflate_decompress(decompressor.get(), directory_.stored(entry).data(), entry.size, destination,
                                                      entry.num_content, nullptr);
    if (result != LIBDEFLATE_SUCCESS) refuse_entry(entry, fmt::format("cannot be decompressed to {} bytes", entry.num_content));
    if (libdeflate_crc32(0, destination, entry.num_content) != entry.crc) refuse_checksum(entry);
  }

  void check_method(const ZipEntry& entry) const {
    constexpr const char* kFix = "unpack the archive and give the file that torch.save wrote";
    if (entry.is_encrypted()) refuse(source_, "entry " + in_quotes(entry.name) + " is encrypted", kFix);
    if (entry.method != ZipEntry::kStored && entry.method != ZipEntry::kDeflated) {
      refuse(source_, fmt::format("entry {} is compressed with method {} of zip, not 8 (deflate)", in_quotes(entry.name), entry.method),
             kFix);
    }
    if (entry.method == ZipEntry::kStored && entry.size != entry.num_content)
      refuse_entry(entry, "is not compressed, but has two different sizes");
  }

  [[noreturn]] void refuse_checksum(const ZipEntry& entry) const {
    if (entry.crc == 0) {
      refuse(source_,
             fmt::format("entry {} has no checksum, because torch.serialization.skip_data() saves tensors without their values",
                         in_quotes(entry.name)),
             "save it again without skip_data()");
    }
    refuse_entry(entry, fmt::format("has changed: the checksum of bytes {} to {} does not match", entry.offset, entry.offset + entry.size));
  }

  [[noreturn]] void refuse_entry(const ZipEntry& entry, std::string_view what) const {
    refuse_damaged(source_, fmt::format("entry {} {}", in_quotes(entry.name), what));
  }

  std::string source_;
  Budget budget_;
  ZipDirectory directory_;
  std::string_view folder_;
  std::map<const ZipEntry*, torch::Storage> storages_;
};

}  // namespace

state::Tree read_pytorch_file(std::span<const uint8_t> bytes, const std::string& source) { return TorchZip(bytes, source).read(); }

// write_pytorch_file() writes the storages unchanged, and states that they are little-endian.
static_assert(std::endian::native == std::endian::little);

// Writes the entries of torch.save, in its order.
void write_pytorch_file(const state::Tree& tree, Output& output) {
  const auto [program, storages] = pickle(tree);
  // LibTorch's writer writes again in its destructor, which must not fail: after a failure, it gets no exception, and nothing is written.
  std::exception_ptr failure;
  caffe2::serialize::PyTorchStreamWriter archive([&](const void* bytes, size_t size) {
    try {
      if (!failure) output.write({static_cast<const char*>(bytes), size});
    } catch (...) {
      failure = std::current_exception();
    }
    return size;
  });
  const auto add = [&](const std::string& name, const void* bytes, size_t size) {
    archive.writeRecord(name, bytes, size);
    if (failure) std::rethrow_exception(failure);
  };
  const auto add_text = [&](const std::string& name, std::string_view text) { add(name, text.data(), text.size()); };
  add_text("data.pkl", program);
  add_text(".format_version", "1");
  add_text(".storage_alignment", "64");
  add_text("byteorder", "little");
  for (size_t i = 0; i < storages.size(); ++i) add(fmt::format("data/{}", i), storages[i].data, storages[i].size);
  archive.writeEndOfFile();
  if (failure) std::rethrow_exception(failure);
}

uint64_t save(const std::filesystem::path& path, const state::Tree& tree) {
  AtomicFile file(path);
  write_pytorch_file(tree, file);
  file.commit();
  return std::filesystem::file_size(path);
}

}  // namespace trainer::checkpoint
