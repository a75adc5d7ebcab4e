#include "data/near_duplicates.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <compare>
#include <cstddef>
#include <mutex>
#include <numbers>
#include <optional>
#include <stop_token>
#include <thread>
#include <tuple>
#include <utility>

namespace trainer::data {
namespace {

constexpr size_t kSide = kThumbnailSide;
constexpr size_t kNumPixels = kSide * kSide;
using Grey = std::array<float, kNumPixels>;

// The minimum standard deviation of the blurred grey values (0 to 255); images with a smaller one have no structure besides noise.
constexpr float kLeastDeviation = 2.5F;
// The minimum similarity of near duplicates. Copies of photographs that were saved as JPEG with quality 30, or cropped by up to a twentieth
// of the edge on each side, have more than 0.94; other pairs seldom have more than 0.85.
constexpr float kLeastSimilarity = 0.88F;

// Filters with [1 2 1] / 4 in both directions; the edges are repeated.
Grey blur(const Grey& image) {
  Grey rows, result;
  for (size_t y = 0; y < kSide; ++y) {
    for (size_t x = 0; x < kSide; ++x) {
      const float* row = &image[y * kSide];
      rows[y * kSide + x] = (row[x == 0 ? 0 : x - 1] + 2 * row[x] + row[std::min(x + 1, kSide - 1)]) / 4;
    }
  }
  for (size_t y = 0; y < kSide; ++y) {
    const float* above = &rows[(y == 0 ? 0 : y - 1) * kSide];
    const float* below = &rows[std::min(y + 1, kSide - 1) * kSide];
    for (size_t x = 0; x < kSide; ++x) result[y * kSide + x] = (above[x] + 2 * rows[y * kSide + x] + below[x]) / 4;
  }
  return result;
}

// Blurs the thumbnail and normalises it to mean 0 and standard deviation 1. Returns false if the image has no structure.
bool normalise(const Thumbnail& thumbnail, Grey& grey) {
  std::ranges::copy(thumbnail, grey.begin());
  grey = blur(grey);
  float sum = 0, squares = 0;
  for (const float value : grey) sum += value;
  const float mean = sum / kNumPixels;
  for (const float value : grey) squares += (value - mean) * (value - mean);
  const float deviation = std::sqrt(squares / kNumPixels);
  if (deviation < kLeastDeviation) return false;
  for (auto& value : grey) value = (value - mean) / deviation;
  return true;
}

// The 64 lowest frequencies of the cosine transform, excluding the mean.
constexpr size_t kNumWaves = 64;
using Waves = std::array<float, kNumWaves>;

class CosineTransform {
 public:
  CosineTransform() {
    for (size_t sum = 1; order_.size() < kNumWaves; ++sum) {
      for (size_t v = 0; v <= sum && order_.size() < kNumWaves; ++v) order_.emplace_back(v, sum - v);
    }
    for (size_t k = 0; k < kMost; ++k) {
      for (size_t x = 0; x < kSide; ++x) {
        cosines_[k][x] = static_cast<float>(std::cos(std::numbers::pi * static_cast<double>(k) * (static_cast<double>(x) + 0.5) / kSide));
      }
    }
  }

  Waves operator()(const Grey& grey) const {
    std::array<std::array<float, kSide>, kMost> columns{};  // [k][x]
    for (size_t y = 0; y < kSide; ++y) {
      for (size_t k = 0; k < kMost; ++k) {
        for (size_t x = 0; x < kSide; ++x) columns[k][x] += cosines_[k][y] * grey[y * kSide + x];
      }
    }
    Waves waves{};
    for (size_t i = 0; i < kNumWaves; ++i) {
      for (size_t x = 0; x < kSide; ++x) waves[i] += cosines_[order_[i].second][x] * columns[order_[i].first][x];
    }
    return waves;
  }

 private:
  static constexpr size_t kMost = 12;
  std::vector<std::pair<size_t, size_t>> order_;
  std::array<std::array<float, kSide>, kMost> cosines_;
};

// Moments of two images, over the area where both have pixels.
struct Moments {
  float variance_a = 0, variance_b = 0, covariance = 0;

  float correlation() const {
    const float variances = variance_a * variance_b;
    return variances > 0 ? covariance / std::sqrt(variances) : 0;
  }
};

Moments moments_of(const Grey& a, const Grey& b, const Grey& weights) {
  float weight = 0, sum_a = 0, sum_b = 0, aa = 0, bb = 0, ab = 0;
  for (size_t i = 0; i < kNumPixels; ++i) {
    const float weighted_a = weights[i] * a[i], weighted_b = weights[i] * b[i];
    weight += weights[i];
    sum_a += weighted_a;
    sum_b += weighted_b;
    aa += weighted_a * a[i];
    bb += weighted_b * b[i];
    ab += weighted_a * b[i];
  }
  return {aa - sum_a * sum_a / weight, bb - sum_b * sum_b / weight, ab - sum_a * sum_b / weight};
}

// Maps positions in one image to positions in another, which was cropped differently: x to (1 + stretch) * x + shift, both measured from
// the middle of the image.
struct Placement {
  float shift_y = 0, shift_x = 0, stretch_y = 0, stretch_x = 0;

  bool is_small() const {
    constexpr float kMostShift = 4, kMostStretch = 0.25F;
    return std::max(std::abs(shift_y), std::abs(shift_x)) < kMostShift && std::max(std::abs(stretch_y), std::abs(stretch_x)) < kMostStretch;
  }
};

// Where a row or column of one image is in another image: between two of its rows or columns, whose values are interpolated.
struct Position {
  size_t first = 0;     // index of the lower of the two neighbours
  float part = 0;       // fraction of the way from the first to the second
  float is_inside = 0;  // 1 or 0
};
using Positions = std::array<Position, kSide>;

constexpr float kMiddle = (kSide - 1) / 2.0F;

Positions positions_of(float shift, float stretch) {
  Positions positions;
  for (size_t i = 0; i < kSide; ++i) {
    const float from = kMiddle + shift + (1 + stretch) * (static_cast<float>(i) - kMiddle);
    const float inside = std::clamp(from, 0.0F, kSide - 1.001F);
    const auto first = static_cast<size_t>(inside);
    positions[i] = {first, inside - static_cast<float>(first), std::abs(from - kMiddle) <= kSide / 2.0F ? 1.0F : 0.0F};
  }
  return positions;
}

float value_at(const Grey& grey, const Position& y, const Position& x) {
  const float* at = &grey[y.first * kSide + x.first];
  const float above = at[0] + x.part * (at[1] - at[0]);
  const float below = at[kSide] + x.part * (at[kSide + 1] - at[kSide]);
  return above + y.part * (below - above);
}

// Aligns an image with others: find() returns the shift and stretch that map its pixels to the same content in the other image.
class Aligner {
 public:
  // `grey` must outlive this object.
  explicit Aligner(const Grey& grey) : grey_(grey) {
    for (size_t i = 0; i < kNumPoints; ++i) {
      const size_t y = row(i), x = column(i), at = y * kSide + x;
      const float down = (grey[at + kSide] - grey[at - kSide]) / 2, right = (grey[at + 1] - grey[at - 1]) / 2;
      slopes_[i] = {down, right, down * (static_cast<float>(y) - kMiddle), right * (static_cast<float>(x) - kMiddle)};
    }
  }

  // Uses the Gauss-Newton method, with the contrast and brightness of `other` as further unknowns. Returns the identity if the solution is
  // far from it.
  Placement find(const Grey& other) const {
    constexpr int kMostSteps = 12;
    constexpr float kEnough = 0.01F;
    Placement placement;
    for (int step = 0; step < kMostSteps; ++step) {
      const auto change = step_from(placement, other);
      placement.shift_y += change[0];
      placement.shift_x += change[1];
      placement.stretch_y += change[2];
      placement.stretch_x += change[3];
      if (!placement.is_small()) return {};
      if (std::abs(change[0]) + std::abs(change[1]) + kMiddle * (std::abs(change[2]) + std::abs(change[3])) < kEnough) break;
    }
    return placement;
  }

 private:
  static constexpr size_t kNumInRow = kSide / 2 - 1, kNumPoints = kNumInRow * kNumInRow, kNumUnknowns = 6;
  using Equation = std::array<float, kNumUnknowns + 1>;

  static size_t row(size_t point) { return point / kNumInRow * 2 + 1; }
  static size_t column(size_t point) { return point % kNumInRow * 2 + 1; }

  // Returns the changes of the placement, followed by those of contrast and brightness.
  std::array<float, kNumUnknowns> step_from(const Placement& placement, const Grey& other) const {
    const auto rows = positions_of(placement.shift_y, placement.stretch_y), columns = positions_of(placement.shift_x, placement.stretch_x);
    std::array<Equation, kNumUnknowns> equations{};
    for (size_t i = 0; i < kNumPoints; ++i) {
      const auto& y = rows[row(i)];
      const auto& x = columns[column(i)];
      const float weight = y.is_inside * x.is_inside, value = value_at(other, y, x);
      const auto& [down, right, down_from_middle, right_from_middle] = slopes_[i];
      const Equation terms = {down, right, down_from_middle, right_from_middle, value, 1, grey_[row(i) * kSide + column(i)] - value};
      for (size_t a = 0; a < kNumUnknowns; ++a) {
        for (size_t b = 0; b < terms.size(); ++b) equations[a][b] += weight * terms[a] * terms[b];
      }
    }
    return solve(equations);
  }

  static std::array<float, kNumUnknowns> solve(std::array<Equation, kNumUnknowns> equations) {
    for (size_t k = 0; k < kNumUnknowns; ++k) {
      // The added terms keep the change of an unknown at about 0 if the image does not determine this unknown, for example for lack of a
      // gradient in one direction.
      equations[k][k] = equations[k][k] * 1.001F + 1e-3F;
      for (size_t i = 0; i < kNumUnknowns; ++i) {
        if (i == k) continue;
        const float factor = equations[i][k] / equations[k][k];
        for (size_t j = k; j < equations[i].size(); ++j) equations[i][j] -= factor * equations[k][j];
      }
    }
    std::array<float, kNumUnknowns> solution{};
    for (size_t k = 0; k < kNumUnknowns; ++k) solution[k] = equations[k].back() / equations[k][k];
    return solution;
  }

  const Grey& grey_;
  std::array<std::array<float, 4>, kNumPoints> slopes_;  // derivatives of the value with respect to the members of a placement
};

// An image after a placement was applied.
struct Placed {
  Grey grey;
  Grey weights;  // 1 where it has pixels, 0 elsewhere
};

Placed place(const Grey& grey, const Placement& placement) {
  const auto rows = positions_of(placement.shift_y, placement.stretch_y), columns = positions_of(placement.shift_x, placement.stretch_x);
  Placed placed;
  for (size_t i = 0; i < kNumPixels; ++i) {
    const auto& y = rows[i / kSide];
    const auto& x = columns[i % kSide];
    placed.grey[i] = value_at(grey, y, x);
    placed.weights[i] = y.is_inside * x.is_inside;
  }
  return placed;
}

// Subtracts from `image` the multiple of `other` that fits it best (least squares).
Grey without(const Grey& image, const Grey& other, const Grey& weights) {
  const auto moments = moments_of(image, other, weights);
  const float gain = moments.covariance / (moments.variance_b + 1);
  Grey rest;
  for (size_t i = 0; i < kNumPixels; ++i) rest[i] = image[i] - gain * other[i];
  return rest;
}

Grey fine_structure(Grey image) {
  const auto coarse = blur(blur(image));
  for (size_t i = 0; i < kNumPixels; ++i) image[i] -= coarse[i];
  return image;
}

// The structure that many images of a set have in common.
class CommonStructure {
 public:
  explicit CommonStructure(std::span<const ComparedPicture> pictures) {
    constexpr size_t kMostPictures = 4096;
    std::vector<Grey> greys;
    std::vector<Waves> waves;
    const auto count = std::min(pictures.size(), kMostPictures);
    for (size_t i = 0; i < count; ++i) {
      Grey grey;
      if (!normalise(*pictures[i * pictures.size() / count].thumbnail, grey)) continue;
      greys.push_back(grey);
      waves.push_back(transform_(grey));
    }
    find_medians(waves);
    find_kinds(greys, waves);
  }

  // Each bit is set for about half of the images: it tells whether the coefficient of one frequency is above its median.
  uint64_t hash(const Grey& grey) const {
    const auto waves = transform_(grey);
    uint64_t hash = 0;
    // Neighbouring frequencies are in different blocks of 16 bits.
    for (size_t i = 0; i < kNumWaves; ++i) hash |= uint64_t{waves[i] > medians_[i]} << (i % 4 * 16 + i / 4);
    return hash;
  }

  // The mean of the images of the kind (cluster) that is nearest to `grey`; 0 if that kind has too few images.
  const Grey& mean_for(const Grey& grey) const { return means_.empty() ? none_ : means_[nearest(centres_, transform_(grey))]; }

 private:
  static size_t nearest(const std::vector<Waves>& centres, const Waves& waves) {
    size_t best = 0;
    float least = INFINITY;
    for (size_t k = 0; k < centres.size(); ++k) {
      float distance = 0;
      for (size_t i = 0; i < kNumWaves; ++i) distance += (waves[i] - centres[k][i]) * (waves[i] - centres[k][i]);
      if (distance < least) std::tie(best, least) = std::pair(k, distance);
    }
    return best;
  }

  void find_medians(const std::vector<Waves>& waves) {
    std::vector<float> values(waves.size());
    for (size_t i = 0; i < kNumWaves && !waves.empty(); ++i) {
      std::ranges::transform(waves, values.begin(), [i](const Waves& one) { return one[i]; });
      std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
      medians_[i] = values[values.size() / 2];
    }
  }

  // Divides the images into kinds by k-means, and computes the mean image of each kind.
  void find_kinds(const std::vector<Grey>& greys, const std::vector<Waves>& waves) {
    constexpr size_t kMostKinds = 16, kLeastOfKind = 32, kUsualOfKind = 256;
    constexpr int kNumRounds = 12;
    if (waves.size() < kLeastOfKind) return;
    const auto num_kinds = std::clamp<size_t>(waves.size() / kUsualOfKind, 1, kMostKinds);
    for (size_t k = 0; k < num_kinds; ++k) centres_.push_back(waves[k * waves.size() / num_kinds]);
    std::vector<size_t> kinds(waves.size());
    std::vector<float> counts;
    for (int round = 0; round < kNumRounds; ++round) {
      std::ranges::transform(waves, kinds.begin(), [&](const Waves& one) { return nearest(centres_, one); });
      centres_.assign(num_kinds, {});
      counts.assign(num_kinds, 0);
      for (size_t n = 0; n < waves.size(); ++n) {
        ++counts[kinds[n]];
        for (size_t i = 0; i < kNumWaves; ++i) centres_[kinds[n]][i] += (waves[n][i] - centres_[kinds[n]][i]) / counts[kinds[n]];
      }
    }
    means_.assign(num_kinds, {});
    for (size_t n = 0; n < greys.size(); ++n) {
      const float count = counts[kinds[n]];
      // The mean of only a few images would resemble each of them too closely.
      if (count < kLeastOfKind) continue;
      for (size_t i = 0; i < kNumPixels; ++i) means_[kinds[n]][i] += greys[n][i] / count;
    }
  }

  CosineTransform transform_;
  Waves medians_{};
  std::vector<Waves> centres_;
  std::vector<Grey> means_;
  Grey none_{};
};

// An image with which others are compared.
class Reference {
 public:
  Reference(const Grey& grey, const CommonStructure& structure)
      : grey_(grey), aligner_(grey_), common_(place(structure.mean_for(grey), aligner_.find(structure.mean_for(grey)))) {}

  // Returns at most 1: the mean of the correlations of the whole structure and of the fine structure, both without the structure that
  // images of this kind have in common.
  float similarity(const Grey& other) const {
    const float in_place = similarity_in(place(other, {}));
    return in_place > kCertain || in_place < kHopeless ? in_place : std::max(in_place, similarity_in(place(other, aligner_.find(other))));
  }

 private:
  // Images whose similarity before alignment is above kCertain or below kHopeless are not aligned, to save time.
  static constexpr float kCertain = 0.97F, kHopeless = 0.2F;

  float similarity_in(Placed placed) const {
    // Where `placed` has no pixels, it gets the pixels of this image; otherwise the filters would show its edge as structure.
    for (size_t i = 0; i < kNumPixels; ++i) placed.grey[i] += (1 - placed.weights[i]) * (grey_[i] - placed.grey[i]);
    for (size_t i = 0; i < kNumPixels; ++i) placed.weights[i] *= common_.weights[i];
    const auto rest = without(grey_, common_.grey, placed.weights), other_rest = without(placed.grey, common_.grey, placed.weights);
    const auto coarse = moments_of(rest, other_rest, placed.weights);
    const auto fine = moments_of(fine_structure(rest), fine_structure(other_rest), placed.weights);
    return (coarse.correlation() + fine.correlation()) / 2;
  }

  Grey grey_;
  Aligner aligner_;
  Placed common_;
};

// The hashes of all images in four tables, each sorted by a different block of 16 bits.
class HashIndex {
 public:
  static constexpr int kMostDistance = 15;
  struct Entry {
    uint64_t hash;
    uint32_t picture;
    auto operator<=>(const Entry&) const = default;
  };

  explicit HashIndex(const std::vector<Entry>& entries) {
    for (size_t block = 0; block < kNumBlocks; ++block) {
      auto& table = tables_[block];
      table.entries = entries;
      std::ranges::sort(table.entries, {},
                        [&](const Entry& entry) { return std::tuple(value(entry.hash, block), entry.hash, entry.picture); });
      table.begins.assign(kNumValues + 1, 0);
      for (const auto& entry : entries) ++table.begins[value(entry.hash, block) + 1];
      for (size_t i = 0; i < kNumValues; ++i) table.begins[i + 1] += table.begins[i];
    }
    for (uint32_t mask = 0; mask < kNumValues; ++mask) {
      if (std::popcount(mask) <= 3) masks_.push_back(mask);
    }
  }

  // Calls `use` with entries at a Hamming distance of at most kMostDistance, possibly several times with the same entry. Two hashes at such
  // a distance have one block that differs in at most 3 bits. If more than 2 * kWindow hashes have the same block, only the 2 * kWindow
  // nearest ones in sorted order are visited.
  template <class Use>
  void visit_near(const Entry& entry, const Use& use) const {
    for (size_t block = 0; block < kNumBlocks; ++block) {
      const auto& table = tables_[block];
      for (const auto mask : masks_) {
        const auto other = value(entry.hash, block) ^ mask;
        const auto* begin = table.entries.data() + table.begins[other];
        const auto* end = table.entries.data() + table.begins[other + 1];
        if (end - begin > 2 * kWindow) {
          const auto wanted = Entry{entry.hash ^ (uint64_t{mask} << (16 * block)), entry.picture};
          const auto* middle = std::clamp(std::lower_bound(begin, end, wanted), begin + kWindow, end - kWindow);
          begin = middle - kWindow;
          end = middle + kWindow;
        }
        for (const auto* one = begin; one != end; ++one) {
          const int distance = std::popcount(one->hash ^ entry.hash);
          if (distance <= kMostDistance && one->picture != entry.picture) use(one->picture, distance);
        }
      }
    }
  }

 private:
  static constexpr size_t kNumBlocks = 4;
  static constexpr uint32_t kNumValues = 1 << 16;
  static constexpr std::ptrdiff_t kWindow = 256;
  struct Table {
    std::vector<Entry> entries;
    std::vector<uint32_t> begins;  // position of the first entry for each value of the block
  };

  static uint32_t value(uint64_t hash, size_t block) { return static_cast<uint32_t>(hash >> (16 * block) & 0xFFFF); }

  std::array<Table, kNumBlocks> tables_;
  std::vector<uint32_t> masks_;
};

// Keeps the kMost nearest of the entries that are added.
class Nearest {
 public:
  void add(uint32_t picture, int distance) {
    if (count_ == kMost && distance >= found_[kMost - 1].second) return;
    const auto end = found_.begin() + static_cast<std::ptrdiff_t>(count_);
    if (std::ranges::find(found_.begin(), end, picture, &std::pair<uint32_t, int>::first) != end) return;
    if (count_ < kMost) ++count_;
    auto at = count_ - 1;
    for (; at > 0 && found_[at - 1].second > distance; --at) found_[at] = found_[at - 1];
    found_[at] = {picture, distance};
  }
  std::span<const std::pair<uint32_t, int>> found() const { return {found_.data(), count_}; }

 private:
  static constexpr size_t kMost = 8;
  std::array<std::pair<uint32_t, int>, kMost> found_{};
  size_t count_ = 0;
};

// Calls work(begin, end) on several threads for parts of the range from 0 to `size`. Meanwhile the calling thread calls `may_continue`
// repeatedly; if it returns false, the remaining parts are skipped.
void run_in_threads(size_t size, int num_threads, const std::function<bool()>& may_continue,
                    const std::function<void(size_t, size_t)>& work) {
  constexpr size_t kPart = 256;
  constexpr std::chrono::milliseconds kPause{50};
  std::atomic<size_t> next = 0, num_done = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < num_threads; ++i) {
    threads.emplace_back([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const auto begin = next.fetch_add(kPart);
        if (begin >= size) return;
        const auto end = std::min(begin + kPart, size);
        work(begin, end);
        num_done += end - begin;
      }
    });
  }
  while (num_done < size && may_continue()) std::this_thread::sleep_for(kPause);
}

}  // namespace

Thumbnail make_thumbnail(const ImageView& image, PictureMemory& memory) {
  Picture picture(image, memory);
  picture.resize(kThumbnailSide, kThumbnailSide);
  picture.make_visible();
  const auto pixels = picture.pixels();
  const auto channels = static_cast<size_t>(pixels.channels);
  Thumbnail thumbnail;
  for (size_t i = 0; i < kNumPixels; ++i) {
    size_t sum = 0;
    for (size_t c = 0; c < channels; ++c) sum += pixels.data[i * channels + c];
    thumbnail[i] = static_cast<uint8_t>((sum + channels / 2) / channels);
  }
  return thumbnail;
}

std::vector<NearDuplicates> find_near_duplicates(std::span<const ComparedPicture> pictures, int num_threads,
                                                 const std::function<bool()>& may_continue) {
  const CommonStructure structure(pictures);
  std::vector<HashIndex::Entry> entries(pictures.size());
  std::vector<uint8_t> has_structure(pictures.size());
  run_in_threads(pictures.size(), num_threads, may_continue, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      Grey grey;
      has_structure[i] = normalise(*pictures[i].thumbnail, grey) ? 1 : 0;
      entries[i] = {has_structure[i] == 1 ? structure.hash(grey) : 0, static_cast<uint32_t>(i)};
    }
  });
  std::erase_if(entries, [&](const auto& entry) { return has_structure[entry.picture] == 0; });
  const HashIndex index(entries);
  std::mutex mutex;  // guards `pairs`, later `result`
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  run_in_threads(entries.size(), num_threads, may_continue, [&](size_t begin, size_t end) {
    std::vector<std::pair<uint32_t, uint32_t>> of_these;
    for (size_t i = begin; i < end; ++i) {
      const auto& entry = entries[i];
      std::array<Nearest, 2> nearest;  // images of the same part of the data set, and of other parts
      index.visit_near(
          entry, [&](uint32_t other, int distance) { nearest[pictures[other].part != pictures[entry.picture].part].add(other, distance); });
      for (const auto& of_parts : nearest) {
        for (const auto& [other, distance] : of_parts.found()) of_these.push_back(std::minmax(entry.picture, other));
      }
    }
    const std::lock_guard lock(mutex);
    pairs.insert(pairs.end(), of_these.begin(), of_these.end());
  });
  std::ranges::sort(pairs);
  pairs.erase(std::ranges::unique(pairs).begin(), pairs.end());
  std::vector<NearDuplicates> result;
  run_in_threads(pairs.size(), num_threads, may_continue, [&](size_t begin, size_t end) {
    std::vector<NearDuplicates> of_these;
    std::optional<Reference> reference;  // the first image of the latest pair
    uint32_t of = 0;
    for (size_t i = begin; i < end; ++i) {
      const auto& [first, second] = pairs[i];
      Grey grey;
      if (!reference || of != first) {
        normalise(*pictures[first].thumbnail, grey);
        reference.emplace(grey, structure);
        of = first;
      }
      normalise(*pictures[second].thumbnail, grey);
      const float similarity = reference->similarity(grey);
      if (similarity >= kLeastSimilarity) of_these.push_back({first, second, similarity});
    }
    const std::lock_guard lock(mutex);
    result.insert(result.end(), of_these.begin(), of_these.end());
  });
  std::ranges::sort(result, {}, [](const NearDuplicates& pair) { return std::pair(pair.first, pair.second); });
  return result;
}

}  // namespace trainer::data
