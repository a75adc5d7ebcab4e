#include "datasets/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include "base/error.h"
#include "datasets/installation.h"

// Functions here throw the reason as std::runtime_error; install() adds the URL and the remedy.

namespace trainer::datasets {
namespace {

namespace fs = std::filesystem;

// The entry's path. Throws unless it is a file or folder inside the folder to which the archive is unpacked.
fs::path checked_path(archive_entry* entry) {
  const char* name = archive_entry_pathname(entry);
  fs::path path = name != nullptr ? name : "";
  bool inside = !path.empty() && path.is_relative();
  for (const auto& part : path) inside = inside && part != "..";
  if (!inside) throw std::runtime_error(fmt::format("the archive is refused: it holds the unsafe path \"{}\"", path.string()));
  const auto type = archive_entry_filetype(entry);
  if (type != AE_IFREG && type != AE_IFDIR) {  // links have other types
    throw std::runtime_error(fmt::format("the archive is refused: \"{}\" in it is neither a file nor a folder", path.string()));
  }
  return path;
}

void check(archive* reader, int64_t result) {
  if (result < ARCHIVE_WARN) throw std::runtime_error(fmt::format("the archive cannot be unpacked: {}", archive_error_string(reader)));
}

void unpack_file(archive* reader, const fs::path& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> output(std::fopen(path.c_str(), "wbxe"), std::fclose);
  if (!output) fail_with_errno("write", path);
  std::vector<char> buffer(size_t{1} << 16);
  while (true) {
    const la_ssize_t size = archive_read_data(reader, buffer.data(), buffer.size());
    check(reader, size);
    if (size <= 0) break;
    if (std::fwrite(buffer.data(), 1, static_cast<size_t>(size), output.get()) != static_cast<size_t>(size)) fail_with_errno("write", path);
  }
  if (std::fflush(output.get()) != 0) fail_with_errno("write", path);
}

void unpack(const fs::path& file, const fs::path& folder) {
  const std::unique_ptr<archive, decltype(&archive_read_free)> owner(archive_read_new(), archive_read_free);
  archive* reader = owner.get();
  check(reader, archive_read_support_format_tar(reader));
  check(reader, archive_read_support_filter_gzip(reader));
  check(reader, archive_read_open_filename(reader, file.c_str(), size_t{1} << 16));
  create_folders(folder);
  archive_entry* entry = nullptr;
  while (true) {
    const int result = archive_read_next_header(reader, &entry);
    if (result == ARCHIVE_EOF) break;
    check(reader, result);
    const auto path = folder / checked_path(entry);
    if (archive_entry_filetype(entry) == AE_IFDIR) {
      create_folders(path);
    } else {
      create_folders(path.parent_path());
      unpack_file(reader, path);
    }
  }
}

}  // namespace

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
