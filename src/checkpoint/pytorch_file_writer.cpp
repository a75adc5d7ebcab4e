#include <fmt/format.h>

#include <bit>

#include "checkpoint/pickler.h"
#include "checkpoint/pytorch_file.h"
#include "checkpoint/zip_writer.h"
#include "trainer/checkpoint.h"

namespace trainer::checkpoint {

// Values are written as they are in memory.
static_assert(std::endian::native == std::endian::little);

// Writes the entries of torch.save, in its order.
void write_pytorch_file(const state::Tree& tree, const std::string& archive_name, Output& output) {
  const auto [program, storages] = pickle(tree);
  ZipWriter zip(archive_name, output);
  zip.add("data.pkl", program);
  zip.add(".format_version", "1");
  zip.add(".storage_alignment", "64");
  zip.add("byteorder", "little");
  for (size_t i = 0; i < storages.size(); ++i) {
    zip.add(fmt::format("data/{}", i), std::span(static_cast<const uint8_t*>(storages[i].data), storages[i].size));
  }
  zip.add("version", "3\n");
  zip.add(".data/serialization_id", zip.content_id());
  zip.finish();
}

uint64_t save(const std::filesystem::path& path, const state::Tree& tree) {
  AtomicFile file(path);
  write_pytorch_file(tree, path.stem().string(), file);
  file.commit();
  return std::filesystem::file_size(path);
}

}  // namespace trainer::checkpoint
