#include "datasets/lmdb.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "base/bytes.h"
#include "base/text.h"
#include "datasets/files.h"
#include "datasets/image_files.h"
#include "datasets/lmdb_file.h"
#include "trainer/error.h"

namespace trainer::datasets {
namespace {

namespace fs = std::filesystem;

class Lmdb : public data::Dataset {
 public:
  // Throws std::runtime_error with the file and the reason.
  explicit Lmdb(const fs::path& folder) : reader_(folder, LmdbFile::Access::kRead) {
    const auto file = lmdb_file(folder).string();
    try {
      read_description();
    } catch (const std::runtime_error& reason) {
      throw std::runtime_error(fmt::format("{} cannot be used: {}", file, reason.what()));
    }
    const int64_t num_stored = static_cast<int64_t>(reader_.num_entries()) - kNumOtherEntries;
    if (num_stored != pack_.num_samples) {
      throw std::runtime_error(fmt::format("{} has {} of {} samples", file, num_stored, pack_.num_samples));
    }
  }

  const PackInfo& pack() const { return pack_; }
  const data::DatasetInfo& info() const override { return pack_.samples; }
  int64_t size() const override { return pack_.num_samples; }

  data::Sample read(int64_t index, data::Scratch& scratch) const override {
    auto sample = read_entry(find(index));
    sample.target = target(index, scratch);
    return sample;
  }
  data::Target target(int64_t index, data::Scratch& scratch) const override {
    const auto num_bytes = num_value_bytes(info());
    const auto* at = labels_.data() + num_target_bytes(info()) * index;
    if (info().has_labels()) return {.label = static_cast<int64_t>(little_endian::load<uint64_t>(at))};
    scratch.targets.clear();
    for (int64_t i = 0; i < info().num_outputs(); ++i, at += num_bytes) {
      scratch.targets.push_back(num_bytes == sizeof(double) ? std::bit_cast<double>(little_endian::load<uint64_t>(at))
                                                            : double{std::bit_cast<float>(little_endian::load<uint32_t>(at))});
    }
    return {.values = scratch.targets};
  }
  void check(int64_t index) const override { check_entry(find(index)); }

  data::SampleOrigin origin(int64_t index) const override {
    auto origin = Dataset::origin(index);
    const auto name = stored_name(index);
    if (name.empty()) return origin;
    origin.name = name;
    origin.key = name.substr(name.starts_with(pack_.folder) ? pack_.folder.size() : 0);
    return origin;
  }
  std::optional<int64_t> num_bytes(int64_t index) const override {
    try {
      return static_cast<int64_t>(find(index).bytes.size());
    } catch (const std::runtime_error&) {
      return 0;  // check() reports the error
    }
  }

  // Makes the system read all pages of a sample together instead of one by one.
  void prefetch(int64_t index) const override {
    static const auto page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    try {
      const auto entry = find(index).bytes;
      const auto begin = reinterpret_cast<uintptr_t>(entry.data());
      const auto first_page = begin / page_bytes * page_bytes;
      ::madvise(reinterpret_cast<void*>(first_page), begin - first_page + entry.size(), MADV_WILLNEED);
    } catch (const std::runtime_error&) {
      // read() will throw this error.
    }
  }

 private:
  void read_description() {
    const auto info = reader_.find(kInfoKey);
    if (info.empty()) throw std::runtime_error("it was not written by `trainer data pack`");
    pack_ = parse_pack_info(as_text(info));
    labels_ = reader_.find(kLabelsKey);
    names_ = reader_.find(kNamesKey);
    if (static_cast<int64_t>(labels_.size()) != num_target_bytes(pack_.samples) * pack_.num_samples) {
      throw std::runtime_error("its entry #labels is damaged");
    }
    if (as_text(reader_.find(kChecksumsKey)) != checksums_entry(as_text(info), as_text(labels_), as_text(names_))) {
      throw std::runtime_error("the checksums of its entries #info, #labels and #names are wrong");
    }
  }

  // Empty for the samples of a source without files.
  std::string_view stored_name(int64_t index) const {
    std::call_once(names_found_, [&] {
      auto rest = as_text(names_);
      while (!rest.empty()) {
        const auto size = std::min(rest.find('\0'), rest.size());
        name_list_.push_back(rest.substr(0, size));
        rest.remove_prefix(std::min(size + 1, rest.size()));
      }
    });
    return index < static_cast<int64_t>(name_list_.size()) ? name_list_[static_cast<size_t>(index)] : std::string_view();
  }

  StoredEntry find(int64_t index) const {
    const auto entry = reader_.find(sample_key(index, pack_.num_samples));
    if (entry.empty()) throw std::runtime_error("it is damaged: its entry is missing");
    return {.bytes = entry, .index = index};
  }

  LmdbFile reader_;
  PackInfo pack_;
  std::span<const uint8_t> labels_;
  std::span<const uint8_t> names_;
  mutable std::once_flag names_found_;
  mutable std::vector<std::string_view> name_list_;  // of all samples; filled by the first call of stored_name()
};

fs::path folder_of(const fs::path& root, data::Split split) {
  return root / (split == data::Split::kTrain ? kPackedTrain : kPackedValidation);
}

// Throws std::runtime_error with the problem, the file and what to do.
std::unique_ptr<Lmdb> open_split(const fs::path& root, data::Split split, bool may_be_unfinished) {
  if (!may_be_unfinished && is_there(root / kUnfinished)) {
    throw std::runtime_error(
        fmt::format("{} is not complete; run the same `trainer data pack` command again to continue (it removes the file {} at the end)",
                    root.string(), kUnfinished));
  }
  if (const auto file = lmdb_file(folder_of(root, split)); !is_there(file)) {
    throw std::runtime_error(fmt::format("there is no {}; set dataset.root to a folder written by `trainer data pack`", file.string()));
  }
  try {
    return std::make_unique<Lmdb>(folder_of(root, split));
  } catch (const std::runtime_error& reason) {
    throw std::runtime_error(fmt::format("{}; copy the folder again, or pack the data set again", reason.what()));
  }
}

std::unique_ptr<data::Dataset> open_lmdb(const LmdbOptions& options, const data::DatasetInfo& expected, data::Split split, Logger& logger) {
  return with_prefix<DataError>("dataset.root", [&] {
    auto dataset = open_split(options.root, split, /*may_be_unfinished=*/false);
    const auto& info = dataset->info();
    if (info != expected) {
      throw std::runtime_error(
          fmt::format("the images in {} differ in classes, targets, shape, mode or orientation from those that {} contained when the "
                      "program started; start the program again, or pack the data set again",
                      folder_of(options.root, split).string(), folder_of(options.root, data::Split::kTrain).string()));
    }
    logger.info("{}: {} {}", folder_of(options.root, split).string(), counted(dataset->size(), "image"), describe_targets(info));
    return dataset;
  });
}

}  // namespace

void LmdbOptions::describe(KeyTable& keys) { describe_root(keys, root, "The folder written by `trainer data pack`."); }

std::unique_ptr<data::Dataset> open_packed(const fs::path& root, data::Split split) {
  try {
    return open_split(root, split, /*may_be_unfinished=*/true);
  } catch (const std::runtime_error& reason) {
    throw DataError(reason.what());
  }
}

data::DatasetFactory lmdb_factory(const LmdbOptions& options) {
  data::DatasetFactory factory;
  factory.info = {.shape = {3, data::kAnySize, data::kAnySize}, .num_classes = data::kUnknownClasses};
  try {
    const auto train = open_split(options.root, data::Split::kTrain, /*may_be_unfinished=*/false);
    factory.info = train->info();
    factory.default_transforms = train->pack().transforms;
    factory.has_validation = is_there(fs::path(options.root) / kPackedValidation);
  } catch (const std::runtime_error& reason) {
    factory.missing = reason.what();
  }
  factory.open = [options, info = factory.info](data::Split split, Logger& logger) { return open_lmdb(options, info, split, logger); };
  factory.locate = [root = options.root](Logger&) { return fs::path(root); };
  factory.in_folder = [](const fs::path& folder) { return lmdb_factory(options_in<LmdbOptions>(folder)); };
  return refuse_missing(std::move(factory));
}

void add_lmdb(DatasetRegistry& registry) {
  registry.add<LmdbOptions>("lmdb", "Images copied from another data set into LMDB by `trainer data pack`.", lmdb_factory);
}

}  // namespace trainer::datasets
