#include "run/survey/starting_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "base/text.h"
#include "datasets/folder_listing.h"

namespace trainer::survey {
namespace {

// By name; empty: false.
using Values = std::map<std::string, std::string>;

// Replaces @NAME@ by the value of that name. A line "?A !B: text" is left out unless the value of A is not empty, and that of B is.
std::string fill_in(std::string_view from, const Values& values) {
  std::istringstream lines{std::string(from)};
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    bool is_kept = true;
    if (line.starts_with('?')) {
      const auto end = line.find(':');
      std::istringstream conditions(line.substr(1, end - 1));
      for (std::string name; conditions >> name;) {
        const bool is_not = name.starts_with('!');
        is_kept = is_kept && values.at(name.substr(is_not ? 1 : 0)).empty() == is_not;
      }
      line.erase(0, end + 2);
    }
    if (!is_kept) continue;
    for (size_t begin = 0; (begin = line.find('@', begin)) != std::string::npos;) {
      const auto end = line.find('@', begin + 1);
      const auto& value = values.at(line.substr(begin + 1, end - begin - 1));
      line.replace(begin, end - begin + 1, value);
      begin += value.size();
    }
    text += line + '\n';
  }
  return text;
}

std::string flag(bool is_set) { return is_set ? "yes" : ""; }

std::string commented(const std::string& line, const std::string& comment) { return fmt::format("{:<54} # {}", line, comment); }

// With more classes, their numbers of images are not listed. Of the numbers of a regression, only this many are listed.
constexpr size_t kMostListed = 20;
// With fewer images, no image is dropped at the end of an epoch, and a fifth instead of a tenth is held out for validation.
constexpr int64_t kFewImages = 2000;

std::string class_name(const DatasetFacts& facts, size_t label) {
  const auto& names = facts.info.class_names;
  return label < names.size() ? config::to_inline_yaml(Node::scalar(names[label])) : std::to_string(label);
}

// The parts, separated by commas, in comment lines of the experiment file.
std::string wrapped(const std::vector<std::string>& parts) {
  constexpr size_t kWidth = 100;
  std::string text = "#  ";
  size_t line = 0;  // where the last line begins
  for (size_t i = 0; i < parts.size(); ++i) {
    if (text.size() - line > 3 && text.size() - line + parts[i].size() > kWidth) {
      text += "\n#  ";
      line = text.size() - 3;
    }
    text += ' ' + parts[i] + (i + 1 < parts.size() ? "," : "");
  }
  return text;
}

std::string describe_numbers(const DatasetFacts& facts) {
  const auto& [num_samples, counts, mean, deviation] = facts.targets;
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(mean.size(), kMostListed); ++i) {
    const auto& names = facts.info.target_names;
    const auto name = names.empty() ? std::to_string(i + 1) : config::to_inline_yaml(Node::scalar(names[i]));
    parts.push_back(fmt::format("{} {:.4g} ± {:.4g}", name, mean[i], deviation[i]));
  }
  return fmt::format("# {} with {} each; mean and standard deviation:\n", counted(num_samples, "training image"),
                     counted(mean.size(), "number")) +
         wrapped(parts);
}

std::string describe_counts(const DatasetFacts& facts) {
  const auto& counts = facts.targets.class_counts;
  const auto [least, most] = std::ranges::minmax(counts);
  auto text = fmt::format("# {} of {}{}", counted(facts.targets.num_samples, "training image"),
                          facts.info.is_multi_label ? "any number of " : "", counted(counts.size(), "class", "classes"));
  if (counts.size() > kMostListed) return text + fmt::format(", {} to {} of each", least, most);
  std::vector<std::string> parts;
  for (size_t label = 0; label < counts.size(); ++label) parts.push_back(fmt::format("{} {}", class_name(facts, label), counts[label]));
  return text + ":\n" + wrapped(parts);
}

std::string describe_sizes(const DatasetFacts& facts) {
  const auto& sizes = facts.sizes.sizes;
  const auto area = [](const ImageSize& size) { return int64_t{size.height} * size.width; };
  const auto [smallest, largest] = std::ranges::minmax(sizes, {}, area);
  const auto text_of = [](const ImageSize& size) { return fmt::format("{} x {}", size.height, size.width); };
  const bool are_all = static_cast<int64_t>(sizes.size()) == facts.targets.num_samples;
  const bool are_equal = std::ranges::count(sizes, sizes.front()) == std::ssize(sizes);
  return fmt::format("{} (height x width, of {} training images)",
                     are_equal ? "Size: " + text_of(smallest) : fmt::format("Sizes: {} to {}", text_of(smallest), text_of(largest)),
                     are_all ? "all" : fmt::format("{} of the", sizes.size()));
}

// The median of the shorter edges.
int64_t median_edge(std::vector<ImageSize> sizes) {
  const auto edge = [](const ImageSize& size) { return std::min(size.height, size.width); };
  const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
  std::ranges::nth_element(sizes, middle, {}, edge);
  return edge(*middle);
}

// Whether most images are more than 1.6 times as long in one direction as in the other.
bool is_elongated(const std::vector<ImageSize>& sizes) {
  const auto num_elongated = std::ranges::count_if(sizes, [](const ImageSize& size) {
    constexpr double kRatio = 1.6;
    return std::max(size.height, size.width) > kRatio * std::min(size.height, size.width);
  });
  return 2 * static_cast<size_t>(num_elongated) > sizes.size();
}

// The statistics of the images on which the published weights were trained.
const PixelStatistics kImagenet = {.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}, .num_images = 0};

// The line of the transform.
std::string normalize(const PixelStatistics& pixels, bool are_floats) {
  std::string mean, std;
  for (size_t i = 0; i < pixels.std.size(); ++i) {
    // Float pixels may all be small, because a camera may use only a few of its 16 bits, and other images may have values of any range.
    // If all images have the same single colour, the standard deviation is 0, and normalize could not divide by it.
    const double deviation = pixels.std[i] < (are_floats ? 1e-12 : 0.00005) ? 1 : pixels.std[i];
    // For float pixels, four significant digits of the deviation.
    const int digits = are_floats ? std::max(3 - static_cast<int>(std::floor(std::log10(deviation))), 0) : 4;
    const auto* separator = i == 0 ? "" : ", ";
    mean += fmt::format("{}{:.{}f}", separator, pixels.mean[i], digits);
    std += fmt::format("{}{:.{}f}", separator, deviation, digits);
  }
  return fmt::format("    - normalize: {{mean: [{}], std: [{}]}}", mean, std);
}

// The keys of `dataset` that find the data, and how images of more than 8 bits are decoded.
std::string describe_section(const DatasetFacts& facts) {
  std::vector<std::string> lines;
  for (const auto& member : facts.section.members)
    lines.push_back(fmt::format("  {}: {}", member.name, config::to_inline_yaml(member.value)));
  const auto& name = facts.section.find("name")->value.text;
  if (const auto& decoding = facts.info.decoding; decoding.has_float_pixels() && (name == "csv" || name == "image_folder")) {
    const auto what = decoding.mode == data::ImageMode::kGrey16 ? "16 bits of grey" : counted(facts.info.shape.front(), "channel");
    lines.push_back(commented(fmt::format("  mode: {}", data::name_of(decoding.mode)), "like the first readable image: " + what));
  }
  return join(lines, "\n");
}

struct Schedule {
  int64_t batch_size = 0;
  double lr = 0;
  int64_t epochs = 0;
  int64_t warmup_epochs = 0;
};

// `has_weights`: whether the network begins with published weights.
Schedule choose_schedule(int64_t num_train, int64_t size, bool has_weights) {
  // Enough for a first result without a long wait.
  constexpr int64_t kImagesOfTraining = 600'000;
  const int64_t usual_batch = has_weights ? 32 : size <= 64 ? 128 : 64;
  Schedule schedule;
  // At least eight steps in an epoch, if there are 16 images or more.
  schedule.batch_size = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(num_train / 8, 2, usual_batch))));
  if (has_weights) {
    schedule.epochs = std::clamp<int64_t>((kImagesOfTraining / 10 / num_train + 4) / 5 * 5, 10, 30);
    schedule.warmup_epochs = 1;
    return schedule;
  }
  schedule.lr = 0.1 * static_cast<double>(schedule.batch_size) / 128;
  schedule.epochs = std::clamp<int64_t>((kImagesOfTraining / num_train + 4) / 5 * 5, 10, 100);
  // Short, so that a first try of three epochs, as in docs/get_started.md, is accepted.
  schedule.warmup_epochs = std::min<int64_t>(schedule.epochs / 10, 2);
  return schedule;
}

}  // namespace

FolderFindings judge_folders(const std::vector<std::string>& images) {
  std::map<std::string, std::set<std::string>> folders;  // below each class folder
  bool are_all_in_folders = true;
  for (const auto& image : images) {
    const auto first = image.find('/');
    const auto second = image.find('/', first + 1);
    auto& of_class = folders[image.substr(0, first)];
    if (second != std::string::npos) of_class.insert(image.substr(first + 1, second - first - 1));
    are_all_in_folders &= second != std::string::npos;
  }
  FolderFindings findings;
  bool are_same = folders.size() > 1;
  for (const auto& [name, below] : folders) {
    const auto part = std::ranges::find_if(below, datasets::is_split_name);
    if (part != below.end()) {
      findings.refusal = fmt::format("the folder \"{}/{}\" is probably not a class; {}", name, *part,
                                     folders.size() == 1 ? fmt::format("give its folder, \"{}\", to --data", name)
                                                         : "arrange the images as train/CLASS/... and val/CLASS/...");
      return findings;
    }
    are_same = are_same && below.size() > 1 && below == folders.begin()->second;
    if (are_all_in_folders && below.size() > 1) findings.folder_of_class = name + '/' + *below.begin();
  }
  if (!are_same) return findings;
  const auto& below = folders.begin()->second;
  findings.warning = fmt::format(
      "the folders \"{}\" to \"{}\" become the classes, but all of them contain the folders \"{}\" to \"{}\"; if these are the classes, "
      "and the "
      "others are patients or scenes, arrange the images as CLASS/PATIENT/..., and set dataset.split.group to '^[^/]+/([^/]+)/'",
      folders.begin()->first, folders.rbegin()->first, *below.begin(), *below.rbegin());
  return findings;
}

ImagePreparation choose_preparation(const DatasetFacts& facts) {
  const auto& shape = facts.info.shape;
  const auto edge = median_edge(facts.sizes.sizes);
  const auto is_square = [&](const ImageSize& size) { return size.height == edge && size.width == edge; };
  ImagePreparation chosen;
  // For a regression, moving, scaling or mirroring an image may change its targets, such as a position or a length.
  const bool are_numbers = facts.info.num_classes == 0;
  const auto add_flip = [&] {
    if (facts.section.find("name")->value.text != "mnist" && !are_numbers)
      chosen.train.push_back(commented("    - random_horizontal_flip: {p: 0.5}", "remove it if left and right differ, as in text"));
  };
  if (edge <= 64 && std::ranges::all_of(facts.sizes.sizes, is_square)) {
    chosen.size = edge;
    if (shape[1] == data::kAnySize) {
      const auto same = fmt::format("    - resize: {{size: [{}, {}]}}", edge, edge);
      chosen.train.push_back(commented(same, "does not change images of this size"));
      chosen.validation.push_back(same);
    }
    const auto crop = fmt::format("    - random_crop: {{size: {}, padding: {}}}", edge, std::max<int64_t>(edge / 8, 1));
    if (!are_numbers) chosen.train.push_back(commented(crop, "shifted at random by up to an eighth of the edge"));
    add_flip();
    return chosen;
  }
  // Published weights were trained on 224 pixels. Without them, enlarged images only cost time.
  chosen.size = edge < 48 ? 32 : edge < 96 ? 64 : edge < 160 ? 128 : edge < 224 && !facts.may_use_weights ? 160 : 224;
  const auto crop = fmt::format("    - random_resized_crop: {{size: {}, scale: [0.35, 1]}}", chosen.size);
  if (!are_numbers) chosen.train.push_back(commented(crop, "a random part of at least 35 % of the image"));
  add_flip();
  // The usual ratio for ImageNet: 256 for 224.
  chosen.validation.push_back(commented(fmt::format("    - resize: {{size: {}}}", chosen.size * 8 / 7), "the shorter edge"));
  const auto middle = fmt::format("    - center_crop: {{size: {}}}", chosen.size);
  const auto letterbox =
      fmt::format("cuts off the ends; `letterbox: {{size: {}}}` instead of resize and center_crop keeps the whole image", chosen.size);
  chosen.validation.push_back(is_elongated(facts.sizes.sizes) ? commented(middle, letterbox) : middle);
  if (are_numbers) chosen.train = chosen.validation;
  return chosen;
}

bool begins_with_weights(const DatasetFacts& facts, const ImagePreparation& preparation) {
  // Enough images to train without published weights.
  constexpr int64_t kManyImages = 100'000;
  return facts.may_use_weights && preparation.size >= 128 && facts.info.shape.front() == 3 && facts.targets.num_samples < kManyImages;
}

std::string starting_file(const DatasetFacts& facts, const ImagePreparation& preparation, const PixelStatistics& measured) {
  const int64_t num_images = facts.targets.num_samples;
  const bool is_few = num_images < kFewImages, has_weights = begins_with_weights(facts, preparation);
  // Whether the file only trains the last layer, on features that are computed once: without a GPU, all layers would take hours. An image
  // that cannot be read has no features.
  const bool is_cached = has_weights && !facts.has_gpu && facts.num_unreadable == 0;
  const int64_t num_train = facts.num_validation ? num_images : std::max<int64_t>(num_images - num_images / (is_few ? 5 : 10), 1);
  const auto schedule = choose_schedule(num_train, preparation.size, has_weights);
  const auto& pixels = has_weights ? kImagenet : measured;
  const auto normalized = normalize(pixels, facts.info.decoding.has_float_pixels());
  auto training = preparation.train, validation = preparation.validation;
  training.insert(training.begin(), "  train_transforms:");
  for (auto* lines : {&training, &validation}) lines->push_back(normalized);
  for (auto& line : training) line.replace(0, is_cached ? 2 : 0, is_cached ? "  #" : "");
  auto dataloader = fmt::format("global_batch_size: {}", schedule.batch_size);
  if (facts.info.shape[1] == data::kAnySize) dataloader += ", num_workers: 4";
  if (is_few) dataloader += ", drop_last: false";
  const auto& counts = facts.targets.class_counts;
  // Whether a class has more than twice as many images as another one.
  const bool is_uneven = !counts.empty() && std::ranges::max(counts) > 2 * std::ranges::min(counts);
  const auto of_training =
      pixels.num_images == num_images ? "all training images" : fmt::format("{} of the training images", pixels.num_images);
  return fill_in(kStartingFile,
                 {{"name", facts.name},
                  {"experiment", fmt::format("{:<36}", facts.name)},
                  {"targets", facts.info.num_classes > 0 ? describe_counts(facts) : describe_numbers(facts)},
                  {"validation", facts.num_validation ? counted(*facts.num_validation, "image") : ""},
                  {"few", flag(is_few)},
                  {"sizes", describe_sizes(facts)},
                  {"small", flag(preparation.size <= 32)},
                  {"medium", flag(preparation.size > 32 && preparation.size <= 64)},
                  {"large", flag(preparation.size > 64)},
                  {"weights", flag(has_weights)},
                  {"may_use_weights", flag(facts.may_use_weights)},
                  {"colour", flag(facts.info.shape.front() == 3)},
                  {"section", describe_section(facts)},
                  {"unreadable", facts.num_unreadable > 0 ? fmt::format("{} of {}", facts.num_unreadable, facts.num_read) : ""},
                  {"labels", flag(facts.info.has_labels())},
                  {"several", flag(facts.info.is_multi_label)},
                  {"numbers", flag(facts.info.num_classes == 0)},
                  {"folder", facts.folder_of_class.empty() ? "" : config::to_inline_yaml(Node::scalar(facts.folder_of_class))},
                  {"origin", has_weights ? "the images on which the weights were trained" : of_training + ", prepared as for validation"},
                  {"cached", flag(is_cached)},
                  {"train_transforms", join(training, "\n")},
                  {"validation_transforms", join(validation, "\n")},
                  {"dataloader", dataloader},
                  {"uneven", is_uneven ? fmt::format("{} to {}", std::ranges::min(counts), std::ranges::max(counts)) : ""},
                  {"lr", fmt::format("{:.2g}", schedule.lr)},
                  {"warmup", counted(schedule.warmup_epochs, "epoch")},
                  {"warmup_epochs", std::to_string(schedule.warmup_epochs)},
                  {"epochs", std::to_string(schedule.epochs)},
                  {"num_train", std::to_string(num_train)}});
}

}  // namespace trainer::survey
