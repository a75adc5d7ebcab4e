#include "checkpoint/read_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <variant>

#include "base/bytes.h"
#include "base/file.h"
#include "base/text.h"
#include "base/zip.h"
#include "checkpoint/pytorch_file.h"
#include "checkpoint/refusal.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/unpickler.h"
#include "trainer/checkpoint.h"

namespace trainer::checkpoint {
namespace {

using little_endian::load;

using namespace std::string_view_literals;

// The first bytes of the file formats.
constexpr char kPickle = '\x80';

// How far from the beginning of a web page its first tag is searched.
constexpr size_t kMostBeginning = 1024;

bool begins_as_safetensors(std::string_view text, std::span<const uint8_t> bytes) {
  return text.size() > sizeof(uint64_t) && text[sizeof(uint64_t)] == '{' && load<uint64_t>(bytes.data()) <= kMaxSafetensorsHeader;
}

class LegacyFile {
 public:
  LegacyFile(std::span<const uint8_t> bytes, const std::string& source)
      : source_(source), bytes_(bytes), next_(kLegacyMagic.size()), budget_(bytes.size(), source) {}

  state::Tree read() {
    check_version(run_program());
    check_byteorder(run_program());
    auto tree = run_program();
    fill_storages(run_program());
    return tree;
  }

 private:
  struct Content {
    torch::Storage storage;
    uint64_t num_elements;
    bool is_filled;
  };

  size_t num_left() const { return bytes_.size() - next_; }

  state::Tree run_program() {
    const auto load = [this](std::string_view key, uint64_t num_elements, size_t element_size) {
      return find_storage(key, num_elements, num_elements * element_size);
    };
    auto [tree, size] =
        unpickle(bytes_.subspan(next_), fmt::format("{}: pickle program at byte {}", source_, next_), StorageIds::kWithView, load, budget_);
    next_ += size;
    return std::move(tree);
  }

  void check_version(const state::Tree& tree) const {
    constexpr int64_t kVersion = 1001;
    const auto* version = std::get_if<int64_t>(&tree.value());
    if (version == nullptr) refuse_damaged(source_, "does not state the version of its format");
    if (*version != kVersion) {
      refuse(source_, fmt::format("has version {} of PyTorch's legacy format; only version {} is supported", *version, kVersion),
             "load it with the PyTorch that wrote it and save it with a newer one");
    }
  }

  void check_byteorder(const state::Tree& tree) const {
    const auto* system = std::get_if<state::Dict>(&tree.value());
    const auto* entry = system == nullptr ? nullptr : system->find("little_endian");
    const auto* is_little_endian = entry == nullptr ? nullptr : std::get_if<bool>(&entry->value());
    if (is_little_endian == nullptr) refuse_damaged(source_, "does not state the byte order of its numbers");
    if (!*is_little_endian) {
      refuse(source_, "was written on a machine that is not little-endian", "load and save it again on an x86 or ARM machine");
    }
  }

  // The content of the storages follows the pickle programs, so the storages together cannot be larger than the rest of the file.
  torch::Storage find_storage(std::string_view key, uint64_t num_elements, uint64_t size) {
    const auto known = storages_.find(key);
    if (known != storages_.end()) {
      const auto& storage = known->second.storage;
      if (storage.nbytes() != size) {
        refuse_damaged(source_, fmt::format("has tensors that need {} bytes of storage {}, and others that need {}", storage.nbytes(),
                                            in_quotes(key), size));
      }
      return storage;
    }
    const auto num_free = num_left() - std::min(num_left(), num_allocated_);
    if (size > num_free) {
      refuse_damaged(source_, fmt::format("is truncated: a tensor needs {} bytes of storage {}, but at most {} bytes are left for it", size,
                                          in_quotes(key), num_free));
    }
    auto storage = allocate_storage(size, budget_);
    num_allocated_ += size;
    budget_.take(key.size());
    storages_.emplace(key, Content{storage, num_elements, /*is_filled=*/false});
    return storage;
  }

  void fill_storages(const state::Tree& tree) {
    const auto* keys = std::get_if<state::List>(&tree.value());
    if (keys == nullptr) refuse_damaged(source_, "does not contain a list of its storages");
    for (const auto& key : *keys) {
      const auto* text = std::get_if<std::string>(&key.value());
      if (text == nullptr) refuse_damaged(source_, "lists a storage without its key");
      fill_storage(*text);
    }
    const auto missing = std::ranges::find_if(storages_, [](const auto& item) { return !item.second.is_filled; });
    if (missing != storages_.end()) {
      refuse_damaged(source_, fmt::format("does not contain storage {}, which a tensor needs", in_quotes(missing->first)));
    }
    if (num_left() != 0) refuse_damaged(source_, fmt::format("contains {} bytes after its last storage", num_left()));
  }

  void fill_storage(const std::string& key) {
    const auto found = storages_.find(key);
    if (found == storages_.end()) refuse_damaged(source_, fmt::format("contains storage {}, which no tensor needs", in_quotes(key)));
    auto& [storage, num_elements, is_filled] = found->second;
    if (is_filled) refuse_damaged(source_, fmt::format("contains storage {} twice", in_quotes(key)));
    const auto count = load<uint64_t>(take(sizeof(uint64_t), key));
    if (count != num_elements) {
      refuse_damaged(source_,
                     fmt::format("contains {} elements of storage {}, but a tensor needs {}", count, in_quotes(key), num_elements));
    }
    std::copy_n(take(storage.nbytes(), key), storage.nbytes(), static_cast<uint8_t*>(storage.mutable_data()));
    is_filled = true;
  }

  const uint8_t* take(size_t size, const std::string& key) {
    if (size > num_left()) {
      refuse_damaged(source_,
                     fmt::format("is truncated: {} bytes are left of the {} that storage {} needs", num_left(), size, in_quotes(key)));
    }
    const auto* bytes = bytes_.data() + next_;
    next_ += size;
    return bytes;
  }

  std::string source_;
  std::span<const uint8_t> bytes_;
  size_t next_;
  Budget budget_;
  size_t num_allocated_ = 0;
  std::map<std::string, Content, std::less<>> storages_;
};

}  // namespace

state::Tree load(const std::filesystem::path& path) {
  const FileAccess access("reading", path);
  const auto file = map_file(path);
  return load(file.bytes(), path.string());
}

state::Tree load(std::span<const uint8_t> bytes, const std::string& source) {
  if (bytes.empty()) refuse_damaged(source, "is empty");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (is_zip(bytes)) return read_pytorch_file(bytes, source);
  if (begins_as_safetensors(text, bytes)) return read_safetensors(bytes, source).tensors;
  if (text.starts_with(kLegacyMagic)) return read_legacy_file(bytes, source);
  if (text.front() == kPickle &&
      text.substr(0, 2 * kLegacyMagic.size()).find(kLegacyMagic.substr(2, kLegacyMagic.size() - 3)) != text.npos) {
    refuse(source, "has another pickle protocol than 2, which only Python can read",
           "save it again with torch.save without the argument pickle_protocol");
  }
  if (text.front() == kPickle) {
    refuse(source, "is a Python pickle, which can execute arbitrary code, and is not in the format of torch.save",
           "save its content with torch.save");
  }
  if (text.starts_with("version https://git-lfs."))
    refuse(source, "is a pointer of Git LFS in place of the file", "fetch the file with `git lfs pull`");
  if (text.starts_with("\x1f\x8b")) refuse(source, "is compressed with gzip", "decompress it with gunzip");
  const auto beginning = lower_case(text.substr(0, kMostBeginning));
  if (beginning.find("<!doctype html") != beginning.npos || beginning.find("<html") != beginning.npos)
    refuse(source, "is an HTML page, such as a web server sends in case of an error", "download the file itself");
  refuse(source, "is neither a file of torch.save nor a safetensors file: it begins with the bytes " + in_quotes(text.substr(0, 16)),
         "give a file of one of these formats");
}

state::Tree read_legacy_file(std::span<const uint8_t> bytes, const std::string& source) { return LegacyFile(bytes, source).read(); }

}  // namespace trainer::checkpoint
