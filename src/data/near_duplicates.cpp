#include "data/near_duplicates.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "data/avx2.h"
#include "data/threads.h"

namespace trainer::data {
namespace {

constexpr size_t kSide = kThumbnailSide;
constexpr size_t kNumPixels = kSide * kSide;
using Grey = std::array<float, kNumPixels>;

// The minimum standard deviation of the blurred grey values (0 to 255); images with a smaller one have no structure besides noise.
constexpr float kLeastDeviation = 2.5F;
// Measured: nearly all copies of photographs that were saved as JPEG with quality 30, or cropped by up to a twentieth of the edge on each
// side, have more than 0.93; other photographs have less than 0.83, and other pictures of simple shapes less than 0.93.
constexpr float kLeastSimilarity = 0.93F;

// Filters with [1 2 1] / 4 in both directions; the edges are repeated.
Grey blur(const Grey& image) {
  constexpr std::array<float, 3> kWeights = {0.25F, 0.5F, 0.25F};
  Grey rows{}, result{};
  for (size_t i = 0; i < kNumPixels; ++i) {
    for (size_t k = 0; k < 3; ++k) rows[i] += kWeights[k] * image[i / kSide * kSide + std::clamp(i % kSide + k, size_t{1}, kSide) - 1];
  }
  for (size_t i = 0; i < kNumPixels; ++i) {
    for (size_t k = 0; k < 3; ++k) result[i] += kWeights[k] * rows[(std::clamp(i / kSide + k, size_t{1}, kSide) - 1) * kSide + i % kSide];
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

// What images have in common, such as the scene that all of them show.
class CommonStructure {
 public:
  explicit CommonStructure(std::span<const ComparedPicture> pictures) {
    constexpr size_t kMostRead = 4096, kMostKinds = 16, kUsualOfKind = 512;
    constexpr int kNumRounds = 12;
    std::vector<Grey> greys;
    const auto count = std::min(pictures.size(), kMostRead);
    for (size_t i = 0; i < count; ++i) {
      Grey grey;
      if (normalise(*pictures[i * pictures.size() / count].thumbnail, grey)) greys.push_back(grey);
    }
    if (greys.size() < kLeastOfKind) return;
    find_means(greys, 1);
    overall_ = kinds_.front().mean;
    // k-means
    const auto num_kinds = std::clamp<size_t>(greys.size() / kUsualOfKind, 1, kMostKinds);
    kinds_.clear();
    for (size_t k = 0; k < num_kinds; ++k) kinds_.push_back({greys[k * greys.size() / num_kinds]});
    for (int round = 0; round < kNumRounds; ++round) find_means(greys, num_kinds);
  }

  // The mean of all images, and that of the kind of images that is nearest to `grey`; 0 for only a few images, which it would resemble.
  const Grey& of_all() const { return overall_; }
  const Grey& of_kind(const Grey& grey) const {
    const auto k = nearest(grey);
    return k == kinds_.size() || kinds_[k].count < kLeastOfKind ? none_ : kinds_[k].mean;
  }

 private:
  static constexpr size_t kLeastOfKind = 100;
  struct Kind {
    Grey mean{};
    size_t count = 0;
  };

  size_t nearest(const Grey& grey) const {
    size_t best = kinds_.size();
    float least = INFINITY;
    for (size_t k = 0; k < kinds_.size(); ++k) {
      float distance = 0;
      for (size_t i = 0; i < kNumPixels; ++i) distance += (grey[i] - kinds_[k].mean[i]) * (grey[i] - kinds_[k].mean[i]);
      if (distance < least) std::tie(best, least) = std::pair(k, distance);
    }
    return best;
  }

  void find_means(const std::vector<Grey>& greys, size_t num_kinds) {
    std::vector<Kind> kinds(num_kinds);
    for (const auto& grey : greys) {
      auto& [mean, count] = kinds[num_kinds == 1 ? 0 : nearest(grey)];
      ++count;
      for (size_t i = 0; i < kNumPixels; ++i) mean[i] += (grey[i] - mean[i]) / static_cast<float>(count);
    }
    kinds_ = std::move(kinds);
  }

  std::vector<Kind> kinds_;
  Grey overall_{};
  Grey none_{};
};

// Subtracts the multiple of `common` that fits the image best (least squares).
Grey without(Grey image, const Grey& common) {
  float both = 0, square = 1;
  for (size_t i = 0; i < kNumPixels; ++i) {
    both += image[i] * common[i];
    square += common[i] * common[i];
  }
  for (size_t i = 0; i < kNumPixels; ++i) image[i] -= both / square * common[i];
  return image;
}

// Compares the means of 8 x 8 cells: in every second row each with its right neighbour, in every second column each with the one below.
uint64_t hash_of(const Grey& image) {
  constexpr size_t kCells = 8, kCell = kSide / kCells;
  std::array<float, kCells * kCells> cells{};
  for (size_t i = 0; i < kNumPixels; ++i) cells[i / kSide / kCell * kCells + i % kSide / kCell] += image[i];
  uint64_t hash = 0;
  for (size_t i = 0; i < kCells / 2; ++i) {
    for (size_t k = 0; k < kCells; ++k) {
      const size_t row = 2 * i * kCells, next = (k + 1) % kCells;
      hash = hash << 1 | uint64_t{cells[row + k] > cells[row + next]};
      hash = hash << 1 | uint64_t{cells[k * kCells + 2 * i] > cells[next * kCells + 2 * i]};
    }
  }
  return hash;
}

// How many pixels the top, bottom, left and right edges of an image are moved.
using Edges = std::array<float, 4>;
constexpr float kMostMoved = 2;

// The image between other edges; values are interpolated, and those beyond its own edges repeat them.
Grey place(const Grey& image, const Edges& edges) {
  std::array<std::array<std::pair<size_t, float>, kSide>, 2> axes;  // the lower neighbour and the distance from it
  for (size_t axis = 0; axis < 2; ++axis) {
    for (size_t i = 0; i < kSide; ++i) {
      const float part = static_cast<float>(i) / (kSide - 1);
      const float at = static_cast<float>(i) + edges[2 * axis] * (1 - part) + edges[2 * axis + 1] * part;
      const float inside = std::clamp(at, 0.0F, kSide - 1.001F);
      axes[axis][i] = {static_cast<size_t>(inside), inside - std::floor(inside)};
    }
  }
  Grey placed;
  for (size_t i = 0; i < kNumPixels; ++i) {
    const auto& [y, down] = axes[0][i / kSide];
    const auto& [x, right] = axes[1][i % kSide];
    const float* at = &image[y * kSide + x];
    const float above = at[0] + right * (at[1] - at[0]), below = at[kSide] + right * (at[kSide + 1] - at[kSide]);
    placed[i] = above + down * (below - above);
  }
  return placed;
}

// Without the pixels near the edges, which place() may have repeated.
float correlation(const Grey& a, const Grey& b) {
  constexpr auto kBorder = static_cast<size_t>(kMostMoved), kEnd = kSide - kBorder;
  constexpr float kCount = (kEnd - kBorder) * (kEnd - kBorder);
  float sum_a = 0, sum_b = 0, aa = 0, bb = 0, ab = 0;
  for (size_t y = kBorder; y < kEnd; ++y) {
    for (size_t i = y * kSide + kBorder; i < y * kSide + kEnd; ++i) {
      sum_a += a[i];
      sum_b += b[i];
      aa += a[i] * a[i];
      bb += b[i] * b[i];
      ab += a[i] * b[i];
    }
  }
  const float variances = (aa - sum_a * sum_a / kCount) * (bb - sum_b * sum_b / kCount);
  return variances > 0 ? (ab - sum_a * sum_b / kCount) / std::sqrt(variances) : 0;
}

Grey sharpen(Grey image) {
  const auto coarse = blur(blur(image));
  for (size_t i = 0; i < kNumPixels; ++i) image[i] -= 0.75F * coarse[i];
  return image;
}

// The correlation of the sharpened images, at most 1, after a search for the edges at which one was cropped from the other.
float similarity(const Grey& a, const Grey& b, const Grey& common) {
  constexpr float kFirstStep = 0.8F, kLastStep = 0.15F, kHopeless = 0.6F, kCertain = 0.99F, kGain = 1e-4F;
  const auto rest = without(a, common);
  Edges best{};
  float most = correlation(rest, without(b, common));
  if (most < kHopeless) return most;
  for (float step = kFirstStep; step > kLastStep && most < kCertain;) {
    const float before = most;
    for (int i = 0; i < 8; ++i) {
      auto edges = best;
      auto& edge = edges[static_cast<size_t>(i / 2)];
      edge += i % 2 == 0 ? step : -step;
      if (std::abs(edge) > kMostMoved) continue;
      const float value = correlation(rest, without(place(b, edges), common));
      if (value > most + kGain) std::tie(most, best) = std::pair(value, edges);
    }
    if (most == before) step /= 2;
  }
  return correlation(sharpen(rest), sharpen(without(place(b, best), common)));
}

// Sets `near` to the indices of the hashes that differ from `hash` in at most 15 of their 64 bits.
TRAINER_FOR_AVX2_TOO void find_near(const std::vector<uint64_t>& hashes, uint64_t hash, std::vector<uint32_t>& near) {
  constexpr int kMostDistance = 15;
  near.clear();
  for (size_t i = 0; i < hashes.size(); ++i) {
    if (std::popcount(hashes[i] ^ hash) <= kMostDistance) near.push_back(static_cast<uint32_t>(i));
  }
}

// The nearest images, with their distances.
using Nearest = std::set<std::pair<int, uint32_t>>;

void add_to(Nearest& nearest, uint32_t picture, int distance) {
  constexpr size_t kMost = 8;
  nearest.emplace(distance, picture);
  if (nearest.size() > kMost) nearest.erase(std::prev(nearest.end()));
}

// Calls work(i, found) for each i below `size` on several threads, and returns all that was found.
template <class Result, class Work>
std::vector<Result> find_in_threads(size_t size, int num_threads, const std::function<bool()>& may_continue, const Work& work) {
  std::mutex mutex;
  std::vector<Result> all;
  const auto continues = [&](size_t /*num_done*/) { return may_continue(); };
  for_each_in_threads<std::vector<Result>>(size, num_threads, continues, [&](size_t i, std::vector<Result>& found) {
    found.clear();
    work(i, found);
    const std::lock_guard lock(mutex);
    all.insert(all.end(), found.begin(), found.end());
  });
  return all;
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
  const CommonStructure common(pictures);
  using Entry = std::pair<uint32_t, uint64_t>;  // an image and its hash
  const auto entries = find_in_threads<Entry>(pictures.size(), num_threads, may_continue, [&](size_t i, std::vector<Entry>& found) {
    Grey grey;
    if (normalise(*pictures[i].thumbnail, grey)) found.emplace_back(static_cast<uint32_t>(i), hash_of(without(grey, common.of_all())));
  });
  std::vector<uint64_t> hashes;
  for (const auto& entry : entries) hashes.push_back(entry.second);
  using Pair = std::pair<uint32_t, uint32_t>;
  auto pairs = find_in_threads<Pair>(entries.size(), num_threads, may_continue, [&](size_t i, std::vector<Pair>& found) {
    const auto [picture, hash] = entries[i];
    std::array<Nearest, 2> nearest;  // images of the same part of the data set, and of other parts
    thread_local std::vector<uint32_t> near;
    find_near(hashes, hash, near);
    for (const auto k : near) {
      const auto other = entries[k].first;
      if (k != i) add_to(nearest[pictures[other].part != pictures[picture].part], other, std::popcount(hashes[k] ^ hash));
    }
    for (const auto& of_parts : nearest) {
      for (const auto& [distance, other] : of_parts) found.push_back(std::minmax(picture, other));
    }
  });
  std::ranges::sort(pairs);
  pairs.erase(std::ranges::unique(pairs).begin(), pairs.end());
  auto result = find_in_threads<NearDuplicates>(pairs.size(), num_threads, may_continue, [&](size_t i, std::vector<NearDuplicates>& found) {
    Grey first, second;
    normalise(*pictures[pairs[i].first].thumbnail, first);
    normalise(*pictures[pairs[i].second].thumbnail, second);
    const float value = similarity(first, second, common.of_kind(first));
    if (value >= kLeastSimilarity) found.push_back({pairs[i].first, pairs[i].second, value});
  });
  std::ranges::sort(result, {}, [](const NearDuplicates& pair) { return std::pair(pair.first, pair.second); });
  return result;
}

}  // namespace trainer::data
