#include "datasets/lmdb_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/little_endian.h"
#include "base/text.h"
#include "trainer/error.h"

namespace trainer::datasets {
namespace {

// What is waiting is committed when it has so many bytes, or after so long.
constexpr size_t kCommitBytes = size_t{16} << 20;
constexpr std::chrono::seconds kCommitInterval{1};

std::string labels_of(const data::Dataset& dataset) {
  std::string labels;
  for (int64_t i = 0; i < dataset.size(); ++i) little_endian::append(labels, static_cast<uint64_t>(dataset.label(i)));
  return labels;
}

std::string names_of(const data::Dataset& dataset) {
  std::string names;
  for (int64_t i = 0; i < dataset.size(); ++i) names.append(dataset.name(i)).push_back('\0');
  return names;
}

// The number of the first sample that two entries #labels or #names describe differently.
int64_t first_different_label(const std::string& a, const std::string& b) {
  return (std::ranges::mismatch(a, b).in1 - a.begin()) / static_cast<int64_t>(sizeof(int64_t));
}
int64_t first_different_name(const std::string& a, const std::string& b) {
  return std::count(a.begin(), std::ranges::mismatch(a, b).in1, '\0');
}

std::string describe(const PackOptions& options) {
  const auto resize = options.resize ? fmt::format("--resize {}", *options.resize) : "no --resize";
  return fmt::format("{} and {}", options.raw ? "--raw" : "no --raw", resize);
}

// What has changed since the packing began, first as it was then; empty: nothing.
std::pair<std::string, std::string> difference(const PackInfo& before, const PackInfo& now) {
  if (before.version != now.version)
    return {fmt::format("version {} of the format", before.version), fmt::format("version {}", now.version)};
  if (before.source != now.source) return {"dataset.name: " + before.source, now.source};
  if (before.options != now.options) return {describe(before.options), describe(now.options)};
  if (before.samples.shape != now.samples.shape) return {"images of another shape", "this one"};
  const auto num_classes = [](const PackInfo& info) { return counted(info.samples.num_classes, "class", "classes"); };
  if (before.samples.num_classes != now.samples.num_classes) return {num_classes(before), num_classes(now)};
  const auto& names = before.samples.class_names;
  const auto& names_now = now.samples.class_names;
  if (names != names_now) {
    const auto [was, is] = std::ranges::mismatch(names, names_now);
    return {"class " + (was == names.end() ? "without a name" : *was), is == names_now.end() ? "without a name" : *is};
  }
  if (before.num_samples != now.num_samples) return {counted(before.num_samples, "sample"), counted(now.num_samples, "sample")};
  return {};
}

}  // namespace

PackWriter::PackWriter(const std::filesystem::path& folder, const PackInfo& info, const data::Dataset& source)
    : writer_(folder), num_samples_(info.num_samples) {
  // As it is read back: a name that is not UTF-8 changes.
  const auto json = to_json(info);
  const auto now = parse_pack_info(json);
  const auto labels = labels_of(source);
  const auto names = names_of(source);
  const auto stored = writer_.find(kInfoKey);
  if (stored.empty()) {
    const std::vector<std::pair<std::string, std::string>> entries = {{std::string(kChecksumsKey), checksums_entry(json, labels, names)},
                                                                      {std::string(kInfoKey), json},
                                                                      {std::string(kLabelsKey), labels},
                                                                      {std::string(kNamesKey), names}};
    writer_.append(entries);
    return;
  }
  const auto refuse_change = [&folder](const std::string& before, const std::string& after) {
    throw UsageError(
        fmt::format("{} was begun with {}, not with {}; continue as it was begun, or remove that folder", folder.string(), before, after));
  };
  if (const auto [before, after] = difference(parse_pack_info(stored), now); !before.empty()) refuse_change(before, after);
  if (const auto before = writer_.find(kNamesKey); before != names) {
    const auto index = first_different_name(before, names);
    refuse_change(fmt::format("another sample {}", index), source.describe(index));
  }
  if (const auto before = writer_.find(kLabelsKey); before != labels) {
    const auto index = first_different_label(before, labels);
    refuse_change(fmt::format("another label of {}", source.describe(index)), fmt::format("{}", source.label(index)));
  }
}

void PackWriter::add(std::string entry) {
  num_waiting_bytes_ += entry.size();
  const auto index = num_written();
  finish_entry(entry, index);
  waiting_.emplace_back(sample_key(index, num_samples_), std::move(entry));
  if (num_waiting_bytes_ >= kCommitBytes || std::chrono::steady_clock::now() - committed_at_ >= kCommitInterval) commit();
}

void PackWriter::commit() {
  writer_.append(waiting_);
  waiting_.clear();
  num_waiting_bytes_ = 0;
  committed_at_ = std::chrono::steady_clock::now();
}

}  // namespace trainer::datasets
