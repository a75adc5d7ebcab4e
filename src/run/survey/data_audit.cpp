#include "run/survey/data_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>

#include "base/signal.h"
#include "base/text.h"
#include "data/image_file.h"
#include "data/picture.h"
#include "reporting/evaluation.h"
#include "run/samples/open_samples.h"
#include "trainer/error.h"

namespace trainer::survey {
namespace {

using reporting::Json;

// An image is unusual if its height, width or width / height differs from the median by more than this factor.
constexpr double kUnusualFactor = 3;

uint64_t hash_of(const void* bytes, size_t size) { return std::hash<std::string_view>()({static_cast<const char*>(bytes), size}); }

// The pixels or values of a whole image.
std::span<const uint8_t> bytes_of(const data::ImageView& image) {
  const auto count = static_cast<size_t>(image.channels) * static_cast<size_t>(image.height) * static_cast<size_t>(image.width);
  if (image.values == nullptr) return {image.pixels, count};
  return {reinterpret_cast<const uint8_t*>(image.values), sizeof(float) * count};
}

uint64_t hash_of_pixels(const data::ImageView& image) {
  const auto bytes = bytes_of(image);
  const std::array<uint64_t, 4> parts = {static_cast<uint64_t>(image.channels), static_cast<uint64_t>(image.height),
                                         static_cast<uint64_t>(image.width), hash_of(bytes.data(), bytes.size())};
  return hash_of(parts.data(), sizeof(parts));
}

// Whether all pixels are equal, which is the case if each equals the next one.
bool is_constant(const data::ImageView& image) {
  const auto bytes = bytes_of(image);
  const auto channels = static_cast<size_t>(image.channels);
  const bool is_planar = image.order == data::PixelOrder::kPlanar;
  const size_t plane = is_planar ? bytes.size() / channels : bytes.size();
  const size_t of_pixel = is_planar ? 1 : channels * (image.values == nullptr ? 1 : sizeof(float));
  for (size_t begin = 0; begin < bytes.size(); begin += plane) {
    if (std::memcmp(&bytes[begin], &bytes[begin] + of_pixel, plane - of_pixel) != 0) return false;
  }
  return true;
}

void keep_best(BestMatches& matches, uint8_t part, const AuditFinding& finding) {
  auto& best = matches[{finding.picture, part}];
  if (finding.similarity > best.similarity) best = finding;
}

// The highest similarity first.
std::vector<AuditFinding> sorted(const BestMatches& matches) {
  std::vector<AuditFinding> findings;
  for (const auto& [key, finding] : matches) findings.push_back(finding);
  std::ranges::stable_sort(findings, std::ranges::greater(), &AuditFinding::similarity);
  return findings;
}

}  // namespace

DataAudit::DataAudit(const config::Experiment& experiment, Logger& logger) : opened_(samples::open_samples(experiment, logger)) {
  add_part("training", opened_.train.dataset());
  if (opened_.validation) add_part("validation", opened_.validation->dataset());
  if (experiment.dataset.split && experiment.dataset.split->test > 0) open_test(experiment);
  if (!info().is_image) throw UsageError(fmt::format("dataset.name: {} has no images to audit", experiment.dataset.component.name));
  thumbnails_.resize(pictures_.size());
}

bool DataAudit::has_damage() const {
  return std::ranges::any_of(kinds_, [](const AuditFindings& kind) { return kind.is_damage && !kind.findings.empty(); });
}

void DataAudit::compare(int num_threads) {
  find_copies(num_threads);
  const bool has_numbers = info().has_values() && !info().is_multi_label;
  kinds_ = {{"leaks", "images that are also in another part",
             "they make validation or test results too good; remove them from one part, or keep copies together (dataset.split.group)",
             true, sorted(leaks_)},
            {"label_conflicts", fmt::format("images that also occur with {}", has_numbers ? "other numbers" : "another label"),
             "correct the wrong target, or remove both images", true, sorted(conflicts_)},
            {"classes_without_training", "classes without training images",
             "no network can learn them; add training images, or remove the class", true},
            {"unreadable", "images that cannot be read", "repair or remove them, or skip them in training with dataset.on_error: skip",
             true, std::move(unreadable_)},
            {"duplicates", "images that occur twice in the same part", "they have more weight than others", false, sorted(repeats_)},
            {"classes_of_training_alone", "classes with only training images",
             "no validation or test result covers them; add validation images of these classes", false}};
  find_classes();
  find_sizes();
  add_pictures("constant", "images of a single colour", "they contain no information", &Picture::is_constant);
  add_pictures("turned", "images with an EXIF orientation",
               info().decoding.is_turned_upright ? "they are turned upright, unlike in torchvision's ImageFolder"
                                                 : "the orientation is ignored; dataset.exif_orientation: apply turns them upright",
               &Picture::is_turned);
  add_pictures("bits_16", "images of which only 8 of 16 bits per channel are used",
               "the lower 8 bits are lost; dataset.mode: raw keeps all bits of TIFF files", &Picture::has_16_bits);
}

data::Sample DataAudit::read_sample(uint32_t picture, data::Scratch& scratch) const {
  const auto& part = parts_[pictures_[picture].part];
  return part.dataset->read(picture - part.first, scratch);
}

std::string DataAudit::describe(uint32_t picture) const {
  const auto& part = parts_[pictures_[picture].part];
  const auto class_name = class_of(picture);
  return printable_line(part.dataset->describe(picture - part.first) + (class_name.empty() ? "" : " (" + class_name + ")"));
}

Json DataAudit::to_json() const {
  Json json = {{"images", Json::object()}, {"damages_results", has_damage()}};
  for (const auto& part : parts_) json["images"][part.title] = part.dataset->size();
  for (const auto& kind : kinds_) {
    auto& list = json[kind.key] = Json::array();
    for (const auto& finding : kind.findings) list.push_back(to_json(finding));
  }
  return json;
}

void DataAudit::add_part(const char* title, const data::Dataset& dataset) {
  parts_.push_back({title, &dataset, static_cast<uint32_t>(pictures_.size())});
  const auto size = pictures_.size() + static_cast<size_t>(dataset.size());
  if (size >= kNoPicture) throw UsageError(fmt::format("dataset.name: {} images are too many for an audit; audit only a part", size));
  pictures_.resize(size, {.part = static_cast<uint8_t>(parts_.size() - 1)});
}

void DataAudit::open_test(const config::Experiment& experiment) {
  const auto& files = opened_.train.files();
  const auto of_files = samples::divide_files(experiment, files).parts;
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < files.size(); ++i) {
    if (of_files[static_cast<size_t>(i)] == data::Split::kTest) indices.push_back(i);
  }
  if (indices.empty()) return;
  // Not owned, because opened_ owns `files` and lives longer than test_.
  const std::shared_ptr<const data::Dataset> not_owned(std::shared_ptr<void>(), &files);
  test_.emplace(not_owned, std::move(indices));
  add_part("test", *test_);
}

DataAudit::Picture DataAudit::examine(const data::Sample& sample, const data::ImageView& image) const {
  Picture picture{.pixels = hash_of_pixels(image), .height = image.height, .width = image.width, .is_constant = is_constant(image)};
  if (info().has_labels()) picture.target = static_cast<uint64_t>(sample.target.label);
  if (info().has_values()) picture.target = hash_of(sample.target.values.data(), sample.target.values.size_bytes());
  if (!sample.encoded.empty()) {
    const auto traits = data::find_traits(sample.encoded);
    picture.is_turned = traits.orientation > 1;
    picture.has_16_bits = traits.bits == 16 && !info().decoding.has_float_pixels();
  }
  return picture;
}

void DataAudit::read(const AuditedPart& part, int num_threads, const std::function<void(int64_t num_read)>& report) {
  class_counts_.emplace_back(static_cast<size_t>(std::max<int64_t>(0, info().num_classes)));
  const auto may_continue = [&](int64_t num_read) {
    report(num_read);
    return stop_signal() == 0;
  };
  const auto visit = [&](int64_t index, const data::Sample& sample, const data::ImageView& image) {
    thread_local data::PictureMemory memory;
    const auto number = part.first + static_cast<size_t>(index);
    thumbnails_[number] = data::make_thumbnail(image, memory);
    auto picture = examine(sample, image);
    picture.part = pictures_[number].part;
    pictures_[number] = picture;
    const std::lock_guard lock(mutex_);
    auto& counts = class_counts_.back();
    if (info().has_labels()) ++counts[static_cast<size_t>(sample.target.label)];
    for (size_t label = 0; info().is_multi_label && label < counts.size(); ++label)
      counts[label] += sample.target.values[label] >= 0.5F ? 1 : 0;
  };
  const auto of_part = data::find_unreadable_samples(*part.dataset, num_threads, may_continue, visit);
  if (stop_signal() != 0) throw Error("stopped on request before all samples were read", ExitCode::kStopped);
  for (const auto& [index, reason] : of_part) {
    unreadable_.push_back({.picture = part.first + static_cast<uint32_t>(index), .text = printable_line(reason)});
  }
}

// Images with the same pixels count as one in the search for nearly equal images.
void DataAudit::find_copies(int num_threads) {
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < pictures_.size(); ++i) {
    if (pictures_[i].height > 0) order.push_back(i);
  }
  std::ranges::sort(order, {}, [&](uint32_t i) { return std::pair(pictures_[i].pixels, i); });
  std::map<uint32_t, std::vector<uint32_t>> copies;  // the first of several equal images -> all of them
  std::vector<uint32_t> distinct;
  for (auto begin = order.begin(); begin != order.end();) {
    const auto end = std::find_if(begin, order.end(), [&](uint32_t i) { return pictures_[i].pixels != pictures_[*begin].pixels; });
    distinct.push_back(*begin);
    if (end - begin > 1) copies[*begin] = {begin, end};
    begin = end;
  }
  std::ranges::sort(distinct);
  for (const auto& [first, all] : copies) relate(all, all, 1);
  std::vector<data::ComparedPicture> compared;
  for (const auto i : distinct) compared.push_back({&thumbnails_[i], pictures_[i].part});
  const auto near = data::find_near_duplicates(compared, num_threads, [] { return stop_signal() == 0; });
  if (stop_signal() != 0) throw Error("stopped on request before all images were compared", ExitCode::kStopped);
  const auto all_of = [&](uint32_t i) {
    const auto found = copies.find(i);
    return found == copies.end() ? std::vector<uint32_t>{i} : found->second;
  };
  for (const auto& pair : near) {
    const auto first = all_of(distinct[pair.first]), second = all_of(distinct[pair.second]);
    // A similarity of 1 is reserved for identical pixels.
    const float similarity = std::min(pair.similarity, 0.9999F);
    relate(first, second, similarity);
    relate(second, first, similarity);
  }
}

// Relates each of `pictures` to earlier images in `others`: for each part and target, only to the first one.
void DataAudit::relate(const std::vector<uint32_t>& pictures, const std::vector<uint32_t>& others, float similarity) {
  std::map<std::pair<uint8_t, uint64_t>, uint32_t> firsts;
  for (const auto other : others) firsts.try_emplace({pictures_[other].part, pictures_[other].target}, other);
  for (const auto later : pictures) {
    for (const auto& [of, earlier] : firsts) {
      if (earlier >= later) continue;
      const auto& [part, target] = of;
      const AuditFinding match{.picture = later, .same_as = earlier, .similarity = similarity};
      const bool is_same_part = part == pictures_[later].part;
      keep_best(is_same_part ? repeats_ : leaks_, part, match);
      const bool can_conflict = similarity == 1 || info().has_labels();
      if (can_conflict && target != pictures_[later].target) keep_best(conflicts_, 0, match);
    }
  }
}

void DataAudit::find_classes() {
  for (size_t label = 0; label < class_counts_.front().size() && (info().has_labels() || info().is_multi_label); ++label) {
    std::string text;
    int64_t num_elsewhere = 0;
    for (size_t part = 0; part < parts_.size(); ++part) {
      const auto count = class_counts_[part][label];
      text += fmt::format("{}{} {}", part == 0 ? "" : ", ", count, parts_[part].title);
      if (part > 0) num_elsewhere += count;
    }
    const bool has_training = class_counts_.front()[label] > 0;
    if (has_training && (num_elsewhere > 0 || parts_.size() == 1)) continue;
    const std::string_view key = has_training ? "classes_of_training_alone" : "classes_without_training";
    std::ranges::find(kinds_, key, &AuditFindings::key)->findings.push_back({.label = static_cast<int64_t>(label), .text = text});
  }
}

void DataAudit::find_sizes() {
  std::array<std::vector<double>, 3> values;
  const auto values_of = [](const Picture& picture) {
    return std::array{static_cast<double>(picture.height), static_cast<double>(picture.width),
                      static_cast<double>(picture.width) / picture.height};
  };
  for (const auto& picture : pictures_) {
    for (size_t i = 0; picture.height > 0 && i < 3; ++i) values[i].push_back(values_of(picture)[i]);
  }
  std::array<double, 3> medians = {1, 1, 1};
  for (size_t i = 0; !values[0].empty() && i < 3; ++i) {
    const auto middle = values[i].begin() + static_cast<std::ptrdiff_t>(values[i].size() / 2);
    std::ranges::nth_element(values[i], middle);
    medians[i] = *middle;
  }
  kinds_.push_back({"unusual_sizes", "images of an unusual size",
                    fmt::format("height, width or width / height is over {0} times the median ({1}, {2} and {3:.2f}) or under 1/{0} of it",
                                kUnusualFactor, medians[0], medians[1], medians[2]),
                    false});
  for (uint32_t i = 0; i < pictures_.size(); ++i) {
    const auto& picture = pictures_[i];
    const auto is_unusual = [](double value, double usual) { return value > kUnusualFactor * usual || value * kUnusualFactor < usual; };
    if (picture.height == 0 || std::ranges::equal(values_of(picture), medians, std::not_fn(is_unusual))) continue;
    kinds_.back().findings.push_back({.picture = i, .text = fmt::format("{} x {} pixels", picture.height, picture.width)});
  }
}

void DataAudit::add_pictures(const char* key, const char* title, const char* advice, bool Picture::*property) {
  kinds_.push_back({key, title, advice, false});
  for (uint32_t i = 0; i < pictures_.size(); ++i) {
    if (pictures_[i].*property) kinds_.back().findings.push_back({.picture = i});
  }
}

std::string DataAudit::class_of(uint32_t picture) const {
  const auto& one = pictures_[picture];
  if (!info().has_labels() || one.height == 0) return "";
  return reporting::name_of_class(info().class_names, static_cast<int64_t>(one.target));
}

Json DataAudit::to_json(uint32_t picture) const {
  const auto& part = parts_[pictures_[picture].part];
  const auto index = picture - part.first;
  Json json = {{"part", part.title}, {"index", index}, {"name", part.dataset->origin(index).name}};
  const auto class_name = class_of(picture);
  if (!class_name.empty()) json["class"] = class_name;
  return json;
}

Json DataAudit::to_json(const AuditFinding& finding) const {
  if (finding.picture == kNoPicture) {
    Json json = {{"class", reporting::name_of_class(info().class_names, finding.label)}, {"images", Json::object()}};
    for (size_t part = 0; part < parts_.size(); ++part) {
      json["images"][parts_[part].title] = class_counts_[part][static_cast<size_t>(finding.label)];
    }
    return json;
  }
  auto json = to_json(finding.picture);
  if (finding.same_as != kNoPicture) {
    json["same_as"] = to_json(finding.same_as);
    json["same_pixels"] = finding.similarity == 1;
    json["similarity"] = std::round(finding.similarity * 1e4F) / 1e4;
  }
  if (const auto& picture = pictures_[finding.picture]; picture.height == 0) {
    json["reason"] = finding.text;
  } else {
    json["height"] = picture.height;
    json["width"] = picture.width;
  }
  return json;
}

}  // namespace trainer::survey
