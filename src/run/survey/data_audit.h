#pragma once
// Finds problems of a data set that make results wrong, such as the same image in training and validation.

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "config/experiment.h"
#include "data/dataset.h"
#include "data/near_duplicates.h"
#include "reporting/values.h"
#include "train/engine/parts.h"

namespace trainer::survey {

inline constexpr uint32_t kNoPicture = UINT32_MAX;

struct AuditedPart {
  const char* title;
  const data::Dataset* dataset;
  uint32_t first;  // number of its first image; the images of all parts are numbered consecutively
};

struct AuditFinding {
  uint32_t picture = kNoPicture;
  uint32_t same_as = kNoPicture;  // the number of an earlier image
  float similarity = 0;           // to same_as; 1: the same pixels
  int64_t label = 0;              // a class, if the finding is not about an image
  std::string text = {};          // a description, if needed
};

// Findings of one kind.
struct AuditFindings {
  const char* key;  // name in JSON
  std::string title;
  std::string advice;
  bool is_damage;
  std::vector<AuditFinding> findings = {};
};

// The most similar earlier image of each image, for each part of the earlier image; for label conflicts, of all parts.
using BestMatches = std::map<std::pair<uint32_t, uint8_t>, AuditFinding>;

class DataAudit {
 public:
  // Opens training, validation and test images. Throws UsageError if the samples are not images.
  DataAudit(const config::Experiment& experiment, Logger& logger);

  const std::vector<AuditedPart>& parts() const { return parts_; }
  // Reads all images of a part; to be called for each part, in order. `report` is called a few times a second. Throws Error after a stop
  // request.
  void read(const AuditedPart& part, int num_threads, const std::function<void(int64_t num_read)>& report);
  // Compares the images that were read with each other. Throws Error after a stop request.
  void compare(int num_threads);

  // Empty before compare().
  const std::vector<AuditFindings>& kinds() const { return kinds_; }
  size_t size() const { return pictures_.size(); }
  bool has_damage() const;
  reporting::Json to_json() const;

  data::Sample read_sample(uint32_t picture, data::Scratch& scratch) const;
  // "sample 17, data/cat/1.jpg (cat)".
  std::string describe(uint32_t picture) const;
  const char* title_of_part(uint32_t picture) const { return parts_[pictures_[picture].part].title; }

 private:
  struct Picture {
    uint64_t pixels = 0;  // a hash of the image's size and pixels
    uint64_t target = 0;  // the label, or a hash of the target's values
    int32_t height = 0;   // 0: the image cannot be read
    int32_t width = 0;
    uint8_t part = 0;
    bool is_constant = false;
    bool is_turned = false;
    bool has_16_bits = false;
  };
  const data::DatasetInfo& info() const { return parts_.front().dataset->info(); }
  void add_part(const char* title, const data::Dataset& dataset);
  void open_test(const config::Experiment& experiment);
  Picture examine(const data::Sample& sample, const data::ImageView& image) const;
  void find_copies(int num_threads);
  void relate(const std::vector<uint32_t>& pictures, const std::vector<uint32_t>& others, float similarity);
  void find_classes();
  void find_sizes();
  void add_pictures(const char* key, const char* title, const char* advice, bool Picture::*property);
  std::string class_of(uint32_t picture) const;
  reporting::Json to_json(uint32_t picture) const;
  reporting::Json to_json(const AuditFinding& finding) const;

  engine::OpenedSamples opened_;
  std::optional<data::Subset> test_;
  std::vector<AuditedPart> parts_;
  std::vector<Picture> pictures_;
  std::vector<data::Thumbnail> thumbnails_;
  std::mutex mutex_;                                // guards class_counts_
  std::vector<std::vector<int64_t>> class_counts_;  // [part][class]
  BestMatches leaks_, conflicts_, repeats_;
  std::vector<AuditFinding> unreadable_;
  std::vector<AuditFindings> kinds_;
};

}  // namespace trainer::survey
