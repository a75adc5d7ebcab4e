#include "datasets/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "base/file.h"
#include "base/signal.h"
#include "base/text.h"
#include "trainer/error.h"

namespace trainer::datasets {
bool is_there(const std::filesystem::path& path) {
  const FileAccess access("looking for", path);
  std::error_code error;
  return std::filesystem::exists(path, error) || error;
}

namespace fs = std::filesystem;

data::DatasetFactory refuse_missing(data::DatasetFactory factory) {
  if (factory.missing.empty()) return factory;
  const auto what = fmt::format("dataset.{}: {}", factory.missing_key, factory.missing);
  factory.open = [what](data::Split, Logger&) -> std::unique_ptr<data::Dataset> { throw DataError(what); };
  factory.locate = [what](Logger&) -> fs::path { throw DataError(what); };
  return factory;
}

void describe_root(KeyTable& keys, std::string& root, const std::string& doc) {
  keys.add("root", root, {.doc = doc, .is_path = true});
  keys.set_facts("root", {.affects_features = true, .samples = KeyFacts::Samples::kAll});
  keys.refuse("root", [&root] { return root.empty() ? "it is empty; set it to a folder, or to . for the current one" : ""; });
}

data::Sample ImagesInMemory::read(int64_t index, data::Scratch&) const {
  const auto& [pixels, label] = images_[static_cast<size_t>(index)];
  const auto side = [this](size_t i) { return static_cast<int>(info_.shape[i]); };
  return {.image = data::ImageView::whole(pixels, side(0), side(1), side(2)), .target = {.label = label}};
}

// Into the second-level cache: the first-level cache accepts only a few requests at a time, and further ones would wait.
void ImagesInMemory::prefetch(int64_t index) const {
  constexpr int64_t kCacheLine = 64;
  const auto* pixels = images_[static_cast<size_t>(index)].pixels;
  const auto count = info_.shape[0] * info_.shape[1] * info_.shape[2];
  for (int64_t i = 0; i < count; i += kCacheLine) __builtin_prefetch(pixels + i, /*rw=*/0, /*locality=*/2);
}

FolderLock::FolderLock(fs::path file, const std::string& activity, Logger& logger) : path_(std::move(file)) {
  if (try_lock(&logger)) return;
  logger.info("waiting for another process that {}", activity);
  while (!try_lock(nullptr)) {
    if (stop_signal() != 0) {
      throw Error(fmt::format("stopped on request while waiting for another process that {}", activity), ExitCode::kStopped);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// Unlinked while the file is still locked, so that the file of a later holder is never removed.
FolderLock::~FolderLock() {
  if (!lock_->taken_by()) ::unlink(path_.c_str());
}

bool FolderLock::try_lock(Logger* logger) {
  lock_.emplace(path_, FileLock::Options{.logger = logger});
  if (!lock_->is_held() && lock_->error() != std::errc::operation_would_block) {
    errno = lock_->error().value();
    fail_with_errno("create", path_);
  }
  return lock_->is_held();
}

PartialFolder::PartialFolder(fs::path path) : path_(std::move(path)) {
  std::error_code error;
  fs::remove_all(path_, error);
  if (error) throw std::system_error(error, "cannot remove " + path_.string());
  create_folders(path_);
}

PartialFolder::~PartialFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void flush_file_system(const fs::path& folder) {
  const auto file = open_file(folder, O_RDONLY | O_DIRECTORY, "write");
  if (::syncfs(file.number()) != 0) fail_with_errno("write", folder);
}

void put_into_place(const fs::path& folder, const fs::path& target) {
  flush_file_system(folder);
  create_folders(target.parent_path());
  if (::rename(folder.c_str(), target.c_str()) != 0) fail_with_errno("create", target);
  flush_folder(target.parent_path());
}

void create_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw std::runtime_error(fmt::format("cannot create {}: {}", folder.string(), explain_refusal(folder, error)));
}

void fail_with_errno(const std::string& action, const fs::path& path) {
  throw std::runtime_error(fmt::format("cannot {} {}: {}", action, path.string(), explain_refusal(path, {errno, std::generic_category()})));
}

Descriptor open_file(const fs::path& path, int flags, const char* action) {
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC, 0666));
  if (file.number() < 0) fail_with_errno(action, path);
  return file;
}

void inflate_all(std::span<const uint8_t> bytes, Deflated format, const std::function<void(std::span<const uint8_t>)>& take) {
  z_stream stream{};
  const int window_bits = format == Deflated::kGzip ? MAX_WBITS + 16 : -MAX_WBITS;
  if (inflateInit2(&stream, window_bits) != Z_OK) throw std::runtime_error("zlib cannot be initialised");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> owner(&stream, inflateEnd);
  std::vector<uint8_t> buffer(size_t{1} << 16);
  int result = Z_OK;
  while (result != Z_STREAM_END || !bytes.empty()) {
    if (result == Z_STREAM_END && (format == Deflated::kRaw || inflateReset(&stream) != Z_OK)) {
      throw std::runtime_error("the compressed data is damaged: it is followed by other bytes");
    }
    const auto length = std::min<size_t>(bytes.size(), std::numeric_limits<uInt>::max());
    stream.next_in = const_cast<Bytef*>(bytes.data());  // zlib only reads from it
    stream.avail_in = static_cast<uInt>(length);
    stream.next_out = buffer.data();
    stream.avail_out = static_cast<uInt>(buffer.size());
    result = inflate(&stream, Z_NO_FLUSH);
    if (result == Z_BUF_ERROR) throw std::runtime_error("the compressed data ends too early");
    if (result != Z_OK && result != Z_STREAM_END) {
      throw std::runtime_error(std::string("the compressed data is damaged: ") + (stream.msg != nullptr ? stream.msg : zError(result)));
    }
    bytes = bytes.subspan(length - stream.avail_in);
    take(std::span<const uint8_t>(buffer).first(buffer.size() - stream.avail_out));
  }
}

}  // namespace trainer::datasets
