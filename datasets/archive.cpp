#include "datasets/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>

#include "base/file.h"
#include "base/signal.h"
#include "datasets/installation.h"
#include "datasets/new_folder.h"
#include "datasets/zip.h"
#include "trainer/error.h"

// Functions here throw the reason as std::runtime_error; install() adds the URL and the remedy.

namespace trainer::datasets {
namespace {

namespace fs = std::filesystem;

// The path of an entry. Throws unless it is a file or folder inside the folder to which the archive is unpacked.
fs::path checked_path(const fs::path& path, bool is_special) {
  bool inside = !path.empty() && path.is_relative();
  for (const auto& part : path) inside = inside && part != "..";
  if (!inside) throw std::runtime_error(fmt::format("the archive is refused: it holds the unsafe path \"{}\"", path.string()));
  if (is_special)
    throw std::runtime_error(fmt::format("the archive is refused: \"{}\" in it is neither a file nor a folder", path.string()));
  return path;
}

void check(archive* reader, int64_t result) {
  if (result < ARCHIVE_WARN) throw std::runtime_error(fmt::format("the archive cannot be unpacked: {}", archive_error_string(reader)));
}

// A file that is being unpacked.
class UnpackedFile {
 public:
  explicit UnpackedFile(fs::path path) : path_(std::move(path)), file_(nullptr, std::fclose) {
    if (stop_signal() != 0) throw Error("stopped on request while unpacking " + path_.string(), ExitCode::kStopped);
    create_folders(path_.parent_path());
    file_.reset(std::fopen(path_.c_str(), "wbxe"));
    if (!file_) fail_with_errno("write", path_);
  }
  void write(std::span<const uint8_t> bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) fail_with_errno("write", path_);
  }
  void finish() {
    if (std::fflush(file_.get()) != 0) fail_with_errno("write", path_);
  }

 private:
  fs::path path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
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
    output.finish();
  }
}

// libarchive's reader of zip files would need more libraries.
void unpack_zip(std::span<const uint8_t> bytes, const fs::path& folder) {
  for (const auto& entry : list_zip(bytes)) {
    const auto path = folder / checked_path(entry.path, entry.is_special);
    if (entry.is_folder) {
      create_folders(path);
      continue;
    }
    UnpackedFile output(path);
    read_zip_entry(bytes, entry, [&output](std::span<const uint8_t> part) { output.write(part); });
    output.finish();
  }
}

void unpack(const fs::path& file, const fs::path& folder) {
  create_folders(folder);
  const MappedFile map(file);
  if (is_zip(map.bytes())) {
    unpack_zip(map.bytes(), folder);
  } else {
    unpack_tar(file, folder);
  }
}

}  // namespace

void PublishedOptions::describe_place(KeyTable& keys, const std::string& own_folders, const std::string& more) {
  keys.add("root", root,
           {.doc = fmt::format("The folder that holds the data set's own folder ({}), or that folder itself.{}", own_folders, more),
            .is_path = true});
  keys.add("download", download, {.doc = "Fetch the data set into `root` if it is not there; otherwise no server is contacted."});
  keys.refuse("root", [this] { return root.empty() ? "it is empty; name a folder, or . for the current one" : ""; });
}

void fetch_archive(const ArchiveSource& source, const std::filesystem::path& root, Logger& logger) {
  install({.root = root, .folder = source.folder, .url = source.url, .by_hand = "unpack that archive by hand"}, logger,
          [&](const fs::path& partial) {
            download(source.url, source.md5, partial / "archive", source.limits, logger);
            unpack(partial / "archive", partial / "content");
            auto folder = partial / "content" / source.folder;
            if (!fs::is_directory(folder)) throw std::runtime_error("the archive holds no folder " + source.folder);
            return folder;
          });
}

void fetch_files(const FilesSource& source, const std::filesystem::path& root, Logger& logger) {
  install({.root = root, .folder = source.folder, .url = source.url, .by_hand = "download its files by hand"}, logger,
          [&](const fs::path& partial) {
            auto folder = partial / "content";
            create_folders(folder);
            for (const auto& file : source.files) {
              try {
                download(source.url + file.name, file.md5, folder / file.name, source.limits, logger);
              } catch (const Error&) {
                throw;
              } catch (const std::runtime_error& reason) {
                throw std::runtime_error(fmt::format("{}: {}", file.name, reason.what()));
              }
            }
            return folder;
          });
}

}  // namespace trainer::datasets
