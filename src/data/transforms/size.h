#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/transforms/transform.h"
#include "trainer/keys.h"

namespace trainer::data {

// The key `size` of a transform: one number, or [height, width].
class SizeKey {
 public:
  // It must outlive `keys`.
  void describe(KeyTable& keys, const std::string& doc);

  bool is_one_number() const { return values_.size() == 1; }
  int height() const { return static_cast<int>(values_.front()); }
  int width() const { return static_cast<int>(values_.back()); }
  std::string text() const;  // "224", or "224 x 160"

 private:
  std::vector<int64_t> values_;
};

}  // namespace trainer::data
