#include "commands/data_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/signal.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "commands/command.h"
#include "commands/pictures.h"
#include "commands/run_end.h"
#include "commands/sample_progress.h"
#include "data/image_file.h"
#include "data/near_duplicates.h"
#include "data/picture.h"
#include "data/unreadable_samples.h"
#include "report/page.h"
#include "reporting/evaluation.h"
#include "reporting/values.h"
#include "run/session/build.h"

namespace trainer::commands {
namespace {

using reporting::Json;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kNoPicture = UINT32_MAX;
// An image is unusual if its height, width or width / height differs from the median by more than this factor.
constexpr double kUnusualFactor = 3;

struct AuditedPart {
  const char* title;
  const data::Dataset* dataset;
  uint32_t first;  // number of its first image; the images of all parts are numbered consecutively
};

struct AuditedPicture {
  uint64_t pixels = 0;  // a hash of the image's size and pixels
  uint64_t target = 0;  // the label, or a hash of the target's values
  int32_t height = 0;   // 0: the image cannot be read
  int32_t width = 0;
  uint8_t part = 0;
  bool is_constant = false;
  bool is_turned = false;
  bool has_16_bits = false;
};

struct Finding {
  uint32_t picture = kNoPicture;
  uint32_t same_as = kNoPicture;  // the number of an earlier image
  float similarity = 0;           // to same_as; 1: the same pixels
  int64_t label = 0;              // a class, if the finding is not about an image
  std::string text = {};          // a description, if needed
};

// Findings of one kind.
struct FindingKind {
  const char* key;  // name in JSON
  std::string title;
  std::string advice;
  bool is_damage;
  std::vector<Finding> findings = {};
};

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
  if (image.order == data::PixelOrder::kInterleaved) {
    const auto of_pixel = channels * (image.values == nullptr ? 1 : sizeof(float));
    return std::memcmp(bytes.data(), bytes.data() + of_pixel, bytes.size() - of_pixel) == 0;
  }
  const size_t plane = bytes.size() / channels;
  for (size_t c = 0; c < channels; ++c) {
    if (std::memcmp(image.pixels + c * plane, image.pixels + c * plane + 1, plane - 1) != 0) return false;
  }
  return true;
}

AuditedPicture examine(const data::Sample& sample, const data::ImageView& image, const data::DatasetInfo& info) {
  AuditedPicture picture{.pixels = hash_of_pixels(image), .height = image.height, .width = image.width, .is_constant = is_constant(image)};
  if (info.has_labels()) picture.target = static_cast<uint64_t>(sample.target.label);
  if (info.has_values()) picture.target = hash_of(sample.target.values.data(), sample.target.values.size_bytes());
  if (!sample.encoded.empty()) {
    const auto traits = data::find_traits(sample.encoded);
    picture.is_turned = traits.orientation > 1;
    picture.has_16_bits = traits.bits == 16 && !info.decoding.has_float_pixels();
  }
  return picture;
}

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Keeps the most similar earlier image of each image, separately for each kind; Audit uses the part of the earlier image as its kind, or 0
// for label conflicts.
class BestMatches {
 public:
  // `kind` must be below 4.
  void add(uint32_t picture, uint32_t kind, uint32_t same_as, float similarity) {
    auto& found = found_[uint64_t{picture} * 4 + kind];
    if (similarity > found.similarity) found = {.picture = picture, .same_as = same_as, .similarity = similarity};
  }
  // Sorted by similarity, the highest first.
  std::vector<Finding> findings() const {
    std::vector<Finding> findings;
    for (const auto& [key, finding] : found_) findings.push_back(finding);
    std::ranges::stable_sort(findings, std::ranges::greater(), &Finding::similarity);
    return findings;
  }

 private:
  std::map<uint64_t, Finding> found_;
};

class Audit {
 public:
  Audit(const config::Experiment& experiment, Logger& logger) : logger_(logger), opened_(session::open_samples(experiment, logger)) {
    add_part("training", opened_.train.dataset());
    if (opened_.validation) add_part("validation", opened_.validation->dataset());
    if (experiment.dataset.split && experiment.dataset.split->test > 0) open_test(experiment);
    if (info().is_image) return;
    throw UsageError(fmt::format("dataset.name: {} has no images to audit", experiment.dataset.component.name));
  }

  const std::vector<AuditedPart>& parts() const { return parts_; }
  const std::vector<FindingKind>& kinds() const { return kinds_; }
  size_t size() const { return pictures_.size(); }
  bool has_damage() const {
    return std::ranges::any_of(kinds_, [](const FindingKind& kind) { return kind.is_damage && !kind.findings.empty(); });
  }

  void run(int num_threads) {
    thumbnails_.resize(pictures_.size());
    auto begin = Clock::now();
    std::vector<Finding> unreadable;
    for (auto& part : parts_) read(part, num_threads, unreadable);
    logger_.info("{} read in {:.1f}s; comparing them with each other", counted(pictures_.size(), "image"), seconds_since(begin));
    begin = Clock::now();
    compare(num_threads);
    logger_.info("compared in {:.1f}s", seconds_since(begin));
    const bool has_numbers = info().has_values() && !info().is_multi_label;
    kinds_ = {{"leaks", "images that are also in another part",
               "they make validation or test results too good; remove them from one part, or keep copies together (dataset.split.group)",
               true, leaks_.findings()},
              {"label_conflicts", fmt::format("images that also occur with {}", has_numbers ? "other numbers" : "another label"),
               "correct the wrong target, or remove both images", true, conflicts_.findings()},
              {"classes_without_training", "classes without training images",
               "no network can learn them; add training images, or remove the class", true},
              {"unreadable", "images that cannot be read", "repair or remove them, or skip them in training with dataset.on_error: skip",
               true, std::move(unreadable)},
              {"duplicates", "images that occur twice in the same part", "they have more weight than others", false, repeats_.findings()},
              {"classes_of_training_alone", "classes with only training images",
               "no validation or test result covers them; add validation images of these classes", false}};
    find_classes();
    find_sizes();
    add_pictures("constant", "images of a single colour", "they contain no information", &AuditedPicture::is_constant);
    add_pictures("turned", "images with an EXIF orientation",
                 info().decoding.is_turned_upright ? "they are turned upright, unlike in torchvision's ImageFolder"
                                                   : "the orientation is ignored; dataset.exif_orientation: apply turns them upright",
                 &AuditedPicture::is_turned);
    add_pictures("bits_16", "images of which only 8 of 16 bits per channel are used",
                 "the lower 8 bits are lost; dataset.mode: raw keeps all bits of TIFF files", &AuditedPicture::has_16_bits);
  }

  data::Sample read_sample(uint32_t picture, data::Scratch& scratch) const {
    const auto& part = parts_[pictures_[picture].part];
    return part.dataset->read(picture - part.first, scratch);
  }

  // "sample 17, data/cat/1.jpg (cat)".
  std::string describe(uint32_t picture) const {
    const auto& part = parts_[pictures_[picture].part];
    const auto class_name = class_of(picture);
    return printable_line(part.dataset->describe(picture - part.first) + (class_name.empty() ? "" : " (" + class_name + ")"));
  }
  const char* title_of_part(uint32_t picture) const { return parts_[pictures_[picture].part].title; }

  Json to_json() const {
    Json json = {{"images", Json::object()}, {"damages_results", has_damage()}};
    for (const auto& part : parts_) json["images"][part.title] = part.dataset->size();
    for (const auto& kind : kinds_) {
      auto& list = json[kind.key] = Json::array();
      for (const auto& finding : kind.findings) list.push_back(to_json(finding));
    }
    return json;
  }

 private:
  const data::DatasetInfo& info() const { return parts_.front().dataset->info(); }

  void add_part(const char* title, const data::Dataset& dataset) {
    parts_.push_back({title, &dataset, static_cast<uint32_t>(pictures_.size())});
    const auto size = pictures_.size() + static_cast<size_t>(dataset.size());
    if (size >= kNoPicture) throw UsageError(fmt::format("dataset.name: {} images are too many for an audit; audit only a part", size));
    pictures_.resize(size, {.part = static_cast<uint8_t>(parts_.size() - 1)});
  }

  void open_test(const config::Experiment& experiment) {
    const auto& files = opened_.train.files();
    const auto of_files = session::divide_files(experiment, files).parts;
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

  void read(AuditedPart& part, int num_threads, std::vector<Finding>& unreadable) {
    class_counts_.emplace_back(static_cast<size_t>(std::max<int64_t>(0, info().num_classes)));
    SampleProgress progress(fmt::format("{}: read", part.title), 0, part.dataset->size(), logger_);
    const auto report = [&](int64_t num_read) {
      progress.update(num_read);
      return stop_signal() == 0;
    };
    const auto visit = [&](int64_t index, const data::Sample& sample, const data::ImageView& image) {
      thread_local data::PictureMemory memory;
      const auto number = part.first + static_cast<size_t>(index);
      thumbnails_[number] = data::make_thumbnail(image, memory);
      auto picture = examine(sample, image, info());
      picture.part = pictures_[number].part;
      pictures_[number] = picture;
      count_classes(sample.target);
    };
    const auto of_part = data::find_unreadable_samples(*part.dataset, num_threads, report, visit);
    progress.clear();
    if (stop_signal() != 0) throw Error("stopped on request before all samples were read", ExitCode::kStopped);
    for (const auto& [index, reason] : of_part) {
      unreadable.push_back({.picture = part.first + static_cast<uint32_t>(index), .text = printable_line(reason)});
    }
  }

  void count_classes(const data::Target& target) {
    const std::lock_guard lock(mutex_);
    auto& counts = class_counts_.back();
    if (info().has_labels()) ++counts[static_cast<size_t>(target.label)];
    if (!info().is_multi_label) return;
    for (size_t label = 0; label < counts.size(); ++label) counts[label] += target.values[label] >= 0.5F ? 1 : 0;
  }

  // Images with the same pixels count as one in the search for nearly equal images.
  void compare(int num_threads) {
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
  void relate(const std::vector<uint32_t>& pictures, const std::vector<uint32_t>& others, float similarity) {
    std::map<std::pair<uint8_t, uint64_t>, uint32_t> firsts;
    for (const auto other : others) firsts.try_emplace({pictures_[other].part, pictures_[other].target}, other);
    for (const auto later : pictures) {
      for (const auto& [of, earlier] : firsts) {
        if (earlier >= later) continue;
        const auto& [part, target] = of;
        const bool is_same_part = part == pictures_[later].part;
        (is_same_part ? repeats_ : leaks_).add(later, part, earlier, similarity);
        const bool can_conflict = similarity == 1 || info().has_labels();
        if (can_conflict && target != pictures_[later].target) conflicts_.add(later, 0, earlier, similarity);
      }
    }
  }

  FindingKind& kind(std::string_view key) { return *std::ranges::find(kinds_, key, &FindingKind::key); }

  void find_classes() {
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
      kind(has_training ? "classes_of_training_alone" : "classes_without_training")
          .findings.push_back({.label = static_cast<int64_t>(label), .text = text});
    }
  }

  void find_sizes() {
    const auto median = [&](const auto& value_of) {
      std::vector<double> values;
      for (const auto& picture : pictures_) {
        if (picture.height > 0) values.push_back(value_of(picture));
      }
      if (values.empty()) return 1.0;
      const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
      std::ranges::nth_element(values, middle);
      return *middle;
    };
    const auto height_of = [](const AuditedPicture& picture) { return static_cast<double>(picture.height); };
    const auto width_of = [](const AuditedPicture& picture) { return static_cast<double>(picture.width); };
    const auto ratio_of = [&](const AuditedPicture& picture) { return width_of(picture) / height_of(picture); };
    const double height = median(height_of), width = median(width_of), ratio = median(ratio_of);
    const auto is_unusual = [](double value, double usual) { return value > kUnusualFactor * usual || value * kUnusualFactor < usual; };
    std::vector<Finding> findings;
    for (uint32_t i = 0; i < pictures_.size(); ++i) {
      const auto& picture = pictures_[i];
      if (picture.height == 0) continue;
      if (!is_unusual(height_of(picture), height) && !is_unusual(width_of(picture), width) && !is_unusual(ratio_of(picture), ratio))
        continue;
      findings.push_back({.picture = i, .text = fmt::format("{} x {} pixels", picture.height, picture.width)});
    }
    const auto rule =
        fmt::format("height, width or width / height is over {0} times the median ({1}, {2} and {3:.2f}) or under 1/{0} of it",
                    kUnusualFactor, height, width, ratio);
    kinds_.push_back({"unusual_sizes", "images of an unusual size", rule, false, std::move(findings)});
  }

  void add_pictures(const char* key, const char* title, const char* advice, bool AuditedPicture::*property) {
    kinds_.push_back({key, title, advice, false});
    for (uint32_t i = 0; i < pictures_.size(); ++i) {
      if (pictures_[i].*property) kinds_.back().findings.push_back({.picture = i});
    }
  }

  std::string class_of(uint32_t picture) const {
    const auto& one = pictures_[picture];
    if (!info().has_labels() || one.height == 0) return "";
    return reporting::name_of_class(info().class_names, static_cast<int64_t>(one.target));
  }

  Json to_json(uint32_t picture) const {
    const auto& part = parts_[pictures_[picture].part];
    const auto index = picture - part.first;
    Json json = {{"part", part.title}, {"index", index}, {"name", part.dataset->name(index)}};
    const auto class_name = class_of(picture);
    if (!class_name.empty()) json["class"] = class_name;
    return json;
  }

  Json to_json(const Finding& finding) const {
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

  Logger& logger_;
  engine::OpenedSamples opened_;
  std::optional<data::Subset> test_;
  std::vector<AuditedPart> parts_;
  std::vector<AuditedPicture> pictures_;
  std::vector<data::Thumbnail> thumbnails_;
  std::mutex mutex_;                                // guards class_counts_
  std::vector<std::vector<int64_t>> class_counts_;  // [part][class]
  BestMatches leaks_, conflicts_, repeats_;
  std::vector<FindingKind> kinds_;
};

std::string likeness(const Finding& finding) {
  return finding.similarity == 1 ? "the same pixels" : fmt::format("similarity {:.2f}", std::min(finding.similarity, 0.99F));
}

std::string number_of(const FindingKind& kind) {
  auto text = kind.findings.empty() ? "none" : std::to_string(kind.findings.size());
  const auto num_same = std::ranges::count(kind.findings, 1, &Finding::similarity);
  if (num_same > 0) text += fmt::format(" ({} with the same pixels)", num_same);
  return text;
}

std::string summary_of(const Audit& audit) {
  std::string parts;
  for (const auto& part : audit.parts()) parts += fmt::format("{}{} for {}", parts.empty() ? "" : ", ", part.dataset->size(), part.title);
  return fmt::format("{}: {}", counted(audit.size(), "image"), parts);
}

// Describes the finding without the other image.
std::string line_of(const Audit& audit, const Finding& finding) {
  const auto& names = audit.parts().front().dataset->info().class_names;
  const auto what = finding.picture == kNoPicture
                        ? printable_line(reporting::name_of_class(names, finding.label))
                        : fmt::format("{} {}", audit.title_of_part(finding.picture), audit.describe(finding.picture));
  return finding.text.empty() ? what : what + ": " + finding.text;
}

void print_findings(const Audit& audit) {
  constexpr size_t kMostExamples = 3;
  print("{}\n", summary_of(audit));
  for (const bool is_damage : {true, false}) {
    print("\n{}\n", is_damage ? "damages results" : "notes");
    for (const auto& kind : audit.kinds()) {
      if (kind.is_damage != is_damage) continue;
      print("  {}: {}\n", kind.title, number_of(kind));
      if (!kind.findings.empty()) print("    ({})\n", kind.advice);
      for (size_t i = 0; i < std::min(kMostExamples, kind.findings.size()); ++i) {
        const auto& finding = kind.findings[i];
        print("    {}\n", line_of(audit, finding));
        if (finding.same_as == kNoPicture) continue;
        print("      matches {} {}, {}\n", audit.title_of_part(finding.same_as), audit.describe(finding.same_as), likeness(finding));
      }
      if (kind.findings.size() > kMostExamples) print("    and {} more\n", kind.findings.size() - kMostExamples);
    }
  }
  print("\n{}\n", audit.has_damage()
                      ? "this data set has problems that damage results; --json lists all findings, and --page shows the images"
                      : "nothing was found that damages results");
}

// The HTML page (--page).

constexpr size_t kMostOnPage = 60;  // findings of each kind

constexpr std::string_view kAuditCss = R"(
.finds { display: grid; gap: 14px; grid-template-columns: repeat(auto-fill, minmax(min(100%, 380px), 1fr)); }
.finds.single { grid-template-columns: repeat(auto-fill, minmax(min(100%, 190px), 1fr)); }
.finds .panel { padding: 12px; }
.finds .images { display: grid; gap: 12px; grid-auto-flow: column; grid-auto-columns: 1fr; }
.finds figure { margin: 0; min-width: 0; font-size: 12px; line-height: 1.35; overflow-wrap: anywhere; }
.finds img, .finds .none { width: 100%; height: 160px; object-fit: contain; background: var(--grid); border-radius: 6px; display: block; margin-bottom: 6px; }
.finds .none { line-height: 160px; text-align: center; color: var(--muted); }
.finds p { margin: 0 0 8px; font-size: 13px; font-weight: 600; }
td.bad { color: var(--bad); font-weight: 600; }
)";

std::string html(std::string_view text) { return report::escaped(printable_line(text)); }

std::string figure_of(const Audit& audit, uint32_t picture) {
  constexpr int kLongestEdge = 240;
  std::string image = R"(<div class="none">cannot be shown</div>)";
  try {
    data::Scratch scratch;
    const auto sample = audit.read_sample(picture, scratch);
    image = fmt::format(R"(<img alt="" src="{}">)", to_data_url(sample, audit.parts().front().dataset->info().decoding, kLongestEdge));
  } catch (const std::exception&) {
    // The audit could read this file, which may have changed since then; the page says that the image cannot be shown.
  }
  return fmt::format("<figure>{}<b>{}</b> {}</figure>", image, audit.title_of_part(picture), report::escaped(audit.describe(picture)));
}

std::string section_of(const Audit& audit, const FindingKind& kind) {
  const auto num_shown = std::min(kMostOnPage, kind.findings.size());
  const auto skipped = num_shown == kind.findings.size()
                           ? ""
                           : fmt::format(" The first {} of {} are shown; <code>trainer data audit --json</code> lists all.", num_shown,
                                         kind.findings.size());
  auto text = fmt::format("<section><h2>{}: {}</h2>\n<p class=\"muted\">({}){}</p>\n", html(kind.title), number_of(kind), html(kind.advice),
                          skipped);
  const bool are_lines = kind.findings.front().picture == kNoPicture || std::string_view(kind.key) == "unreadable";
  const bool are_pairs = kind.findings.front().same_as != kNoPicture;
  text += are_lines ? "<ul>\n" : are_pairs ? "<div class=\"finds\">\n" : "<div class=\"finds single\">\n";
  for (size_t i = 0; i < num_shown; ++i) {
    const auto& finding = kind.findings[i];
    if (are_lines) {
      text += fmt::format("<li>{}</li>\n", html(line_of(audit, finding)));
      continue;
    }
    const auto heading = are_pairs ? likeness(finding) : finding.text;
    text += "<div class=\"panel\">" + (heading.empty() ? "" : "<p>" + html(heading) + "</p>") + "<div class=\"images\">";
    text += figure_of(audit, finding.picture) + (are_pairs ? figure_of(audit, finding.same_as) : "") + "</div></div>\n";
  }
  return text + (are_lines ? "</ul></section>\n" : "</div></section>\n");
}

std::string make_audit_page(const Audit& audit, const std::string& name) {
  std::string rows, sections;
  for (const auto& kind : audit.kinds()) {
    const bool is_bad = kind.is_damage && !kind.findings.empty();
    rows += fmt::format("<tr><td{}>{}</td><td class=\"number\">{}</td><td>{}</td></tr>\n", is_bad ? " class=\"bad\"" : "", html(kind.title),
                        number_of(kind), kind.is_damage ? "damages results" : "note");
    if (!kind.findings.empty()) sections += section_of(audit, kind);
  }
  return fmt::format(R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">
<title>{0} – data audit</title>
<link rel="icon" href="data:,">
<style>{1}{2}</style>
</head>
<body>
<header><h1>Data audit of {0}</h1><p class="muted">{3}</p></header>
<main>
<table class="data"><thead><tr><th>what</th><th class="number">number</th><th></th></tr></thead><tbody>
{4}</tbody></table>
{5}</main>
</body>
</html>
)",
                     html(name), report::kPageCss, kAuditCss, summary_of(audit), rows, sections);
}

}  // namespace

void add_audit_options(CLI::App& app, AuditArguments& arguments) {
  app.add_flag("--json", arguments.json, "print one JSON object with all findings instead of a table");
  app.add_option("--page", arguments.page, "also write a page (HTML) that shows the images side by side")->type_name("FILE");
}

ExitCode audit(const config::Experiment& experiment, const config::ExperimentSource& source, const AuditArguments& arguments,
               int num_threads) {
  constexpr const char* kPage = "--page";
  std::optional<OutputFile> page;
  if (!arguments.page.empty()) {
    refuse_file_of_run(arguments.page, kPage);
    cli::refuse_to_overwrite(source.file, arguments.page, kPage);
    if (is_standard_output(arguments.page)) throw UsageError("--page: the findings are printed to the standard output; name a file");
  }
  install_stop_handlers();
  const auto logger = make_console_logger();
  Audit audit(experiment, *logger);
  if (!arguments.page.empty()) {
    for (const auto& part : audit.parts()) refuse_picture_over(*part.dataset, arguments.page, kPage);
    // Opened now, so that a file that cannot be written is reported before all images are read, which may take an hour.
    page.emplace(arguments.page);
  }
  audit.run(num_threads);
  if (page) {
    page->write(make_audit_page(audit, experiment.experiment));
    page->commit();
  }
  if (arguments.json) {
    cli::print_json(audit.to_json());
  } else {
    print_findings(audit);
    if (page) print_written(arguments.page, "the images side by side; open it in a browser");
  }
  return audit.has_damage() ? ExitCode::kData : ExitCode::kDone;
}

}  // namespace trainer::commands
