#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainer::reporting {

// How the elements of a tensor are distributed.
struct Histogram {
  std::string name = {};  // "layer1.0.conv1.weight"
  double min = 0;
  double max = 0;
  double sum = 0;
  double sum_squares = 0;
  // Of each interval: its upper limit, and the number of elements that are above the limit before it and not above this one.
  std::vector<double> limits = {};
  std::vector<int64_t> counts = {};
};

struct HistogramsEvent {
  int64_t epoch = 0;
  int64_t step = 0;
  std::vector<Histogram> parameters = {};
  std::vector<Histogram> gradients = {};  // of the latest step, summed over the ranks
};

}  // namespace trainer::reporting
