#pragma once
// What a validation with classes finds out beside its metrics.

#include <cstdint>
#include <vector>

namespace trainer::reporting {

// The samples whose most probable class has a probability (their confidence) in one of several intervals of equal width.
struct CalibrationBin {
  double confidence = 0;  // their mean; 0 if there are none
  double accuracy = 0;    // the fraction that is right; 0 if there are none
  int64_t count = 0;
};

// A sample whose most probable class is not its own.
struct Mistake {
  int64_t index = 0;  // among the samples that were evaluated
  int64_t label = 0;
  int64_t predicted = 0;
  double confidence = 0;  // the probability of the predicted class
  bool operator==(const Mistake&) const = default;
};

struct ClassResults {
  std::vector<int64_t> confusion = {};  // [actual][predicted], row by row; empty without classes
  std::vector<CalibrationBin> calibration = {};
  std::vector<Mistake> mistakes = {};  // the most confident ones, the most confident first, of equal ones that with the smallest index
};

}  // namespace trainer::reporting
