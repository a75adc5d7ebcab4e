#include "datasets/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/signal.h"
#include "base/zip.h"
#include "datasets/files.h"
#include "trainer/error.h"

// Functions here throw std::runtime_error with the reason; fetch_published() adds the URL and what to do.

namespace trainer::datasets {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCannotUnpack = "the archive cannot be unpacked";

// The path of an entry. Throws unless it is a file or folder inside the folder to which the archive is unpacked.
fs::path checked_path(const fs::path& path, bool is_special) {
  bool inside = !path.empty() && path.is_relative();
  for (const auto& part : path) inside = inside && part != "..";
  if (!inside) throw std::runtime_error(fmt::format("the archive is refused: it contains the unsafe path \"{}\"", path.string()));
  if (is_special)
    throw std::runtime_error(
        fmt::format("the archive is refused: it contains \"{}\", which is neither a file nor a folder", path.string()));
  return path;
}

void check(archive* reader, int64_t result) {
  if (result < ARCHIVE_WARN) throw std::runtime_error(fmt::format("{}: {}", kCannotUnpack, archive_error_string(reader)));
}

// A file that is being unpacked.
class UnpackedFile {
 public:
  explicit UnpackedFile(fs::path path) : path_(std::move(path)) {
    if (stop_signal() != 0) throw Error("stopped on request while unpacking " + path_.string(), ExitCode::kStopped);
    create_folders(path_.parent_path());
    file_ = open_file(path_, O_WRONLY | O_CREAT | O_EXCL, "write");
  }
  void write(std::span<const uint8_t> bytes) {
    std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!write_all(file_.number(), rest)) fail_with_errno("write", path_);
  }

 private:
  fs::path path_;
  Descriptor file_;
};

void unpack_tar(const fs::path& file, const fs::path& folder) {
  const std::unique_ptr<archive, decltype(&archive_read_free)> owner(archive_read_new(), archive_read_free);
  archive* reader = owner.get();
  check(reader, archive_read_support_format_tar(reader));
  check(reader, archive_read_support_filter_gzip(reader));
  check(reader, archive_read_open_filename(reader, file.c_str(), size_t{1} << 16));
  std::vector<uint8_t> buffer(size_t{1} << 16);
  archive_entry* entry = nullptr;
  while (true) {
    const int result = archive_read_next_header(reader, &entry);
    if (result == ARCHIVE_EOF) break;
    check(reader, result);
    const auto type = archive_entry_filetype(entry);
    const char* name = archive_entry_pathname(entry);
    const auto path = folder / checked_path(name != nullptr ? name : "", type != AE_IFREG && type != AE_IFDIR);
    if (type == AE_IFDIR) {
      create_folders(path);
      continue;
    }
    UnpackedFile output(path);
    while (true) {
      const la_ssize_t size = archive_read_data(reader, buffer.data(), buffer.size());
      check(reader, size);
      if (size <= 0) break;
      output.write(std::span<const uint8_t>(buffer).first(static_cast<size_t>(size)));
    }
  }
}

[[noreturn]] void fail_zip(const std::string& reason) { throw std::runtime_error(fmt::format("{}: {}", kCannotUnpack, reason)); }

void write_zip_entry(std::span<const uint8_t> stored, const ZipEntry& entry, UnpackedFile& output) {
  if (entry.is_encrypted()) fail_zip(fmt::format("the entry \"{}\" is encrypted", entry.name));
  uint64_t num_bytes = 0;
  auto checksum = crc32_z(0, nullptr, 0);
  const auto take = [&](std::span<const uint8_t> part) {
    num_bytes += part.size();
    checksum = crc32_z(checksum, part.data(), part.size());
    output.write(part);
  };
  if (entry.method == ZipEntry::kStored) {
    take(stored);
  } else if (entry.method == ZipEntry::kDeflated) {
    inflate_all(stored, Deflated::kRaw, take);
  } else {
    fail_zip(fmt::format("the entry \"{}\" has the unsupported compression method {}", entry.name, entry.method));
  }
  if (num_bytes != entry.num_content || checksum != entry.crc) fail_zip(fmt::format("the entry \"{}\" is damaged", entry.name));
}

// Does not use libarchive, whose support of zip files needs more libraries.
void unpack_zip(std::span<const uint8_t> bytes, const fs::path& folder) {
  const auto directory = with_prefix<std::runtime_error>(kCannotUnpack, [&] { return ZipDirectory(bytes); });
  for (const auto& entry : directory.entries()) {
    const auto path = folder / checked_path(entry.name, entry.is_special);
    if (entry.name.ends_with('/')) {
      create_folders(path);
      continue;
    }
    UnpackedFile output(path);
    write_zip_entry(directory.stored(entry), entry, output);
  }
}

fs::path make_from_archive(const PublishedSource& source, const fs::path& partial, Logger& logger) {
  download(source.url, {"MD5", source.md5}, partial / "archive", source.limits, logger);
  const MappedFile file(partial / "archive");
  create_folders(partial / "content");
  is_zip(file.bytes()) ? unpack_zip(file.bytes(), partial / "content") : unpack_tar(file.path(), partial / "content");
  auto folder = partial / "content" / source.folder;
  if (!fs::is_directory(folder)) throw std::runtime_error("the archive contains no folder " + source.folder);
  return folder;
}

fs::path make_from_files(const PublishedSource& source, const fs::path& partial, Logger& logger) {
  auto folder = partial / "content";
  create_folders(folder);
  for (const auto& file : source.files) {
    with_prefix<std::runtime_error>(file.name, [&] {
      download(source.url + file.name, {"MD5", file.md5}, folder / file.name, source.limits, logger);
    });
  }
  return folder;
}

}  // namespace

void fetch_published(const PublishedSource& source, const fs::path& root, Logger& logger) {
  const auto target = root / source.folder;
  auto name = source.folder;
  std::ranges::replace(name, '/', '-');
  try {
    create_folders(root);
    const FolderLock lock(root / fmt::format(".{}.lock", name), "downloads " + source.url, logger);
    if (fs::exists(target)) return;
    const PartialFolder partial(root / fmt::format(".{}.partial", name));
    logger.info("downloading {} into {}", source.url, root.string());
    const auto make = source.is_archive() ? make_from_archive : make_from_files;
    put_into_place(make(source, partial.path(), logger), target);
    logger.info("installed in {}", target.string());
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& reason) {
    throw DataError(fmt::format(
        "cannot download {}: {}; try again, or {} {}", source.url, reason.what(),
        source.is_archive() ? "unpack that archive by hand so that its files are in" : "download its files by hand into", target.string()));
  }
}

std::optional<fs::path> PublishedOptions::find(const PublishedSource& source, const std::vector<std::string>& names) const {
  const fs::path given = root;
  if (is_there(given / source.folder)) return given / source.folder;
  const bool is_own = std::ranges::any_of(names, [&](const auto& name) { return is_there(given / name); });
  return is_own ? std::optional(given) : std::nullopt;
}

fs::path PublishedOptions::locate(const PublishedSource& source, const std::vector<std::string>& names, Logger& logger) const {
  const auto folder = find(source, names);
  if (folder) return *folder;
  if (!download) throw DataError("dataset.root: " + explain_absence(source));
  fetch_published(source, root, logger);
  return fs::path(root) / source.folder;
}

std::string PublishedOptions::explain_absence(const PublishedSource& source) const {
  const auto folder = (fs::path(root) / source.folder).string();
  return fmt::format("{} does not contain {} (there is no {}); set dataset.download=true, or {}", root, source.title, folder,
                     source.is_archive() ? fmt::format("unpack {} in {}", source.url, root)
                                         : fmt::format("copy the files from {} to {}", source.url, folder));
}

data::DatasetFactory published_factory(const PublishedImages& images, const PublishedOptions& options) {
  const auto locate = [source = images.source, names = images.names, options](Logger& logger) {
    return options.locate(source, names, logger);
  };
  return {.info = images.info,
          .open = [open = images.open, locate](data::Split split, Logger& logger) { return open(locate(logger), split); },
          .locate = locate,
          .in_folder = [images](const fs::path& folder) { return published_factory(images, options_in<PublishedOptions>(folder)); },
          .sizes = options.find(images.source, images.names) ? std::nullopt : std::optional(images.sizes),
          .is_in_memory = true};
}

void refuse_published_file(const PublishedSource& source, const fs::path& file, const std::string& what) {
  throw DataError(fmt::format("{}: {}; copy this file from {}, or set dataset.root to a new folder and dataset.download=true",
                              file.string(), what, source.url));
}

void PublishedOptions::describe_place(KeyTable& keys, const std::string& own_folders, const std::string& more) {
  describe_root(keys, root, fmt::format("The parent of the data set's folder ({}), or that folder itself.{}", own_folders, more));
  keys.add("download", download, {.doc = "Download the data set into `root` if it is missing."});
}

}  // namespace trainer::datasets
