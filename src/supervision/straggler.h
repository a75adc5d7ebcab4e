#pragma once
// Finds the rank that the others wait for.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "distributed/own_work.h"

namespace trainer::supervision {

// Times are in seconds within one interval; `others` is the median of the other ranks.
struct Straggler {
  enum class Cause { kData, kCompute };
  struct Work {
    double own = 0;
    double others = 0;
    double excess() const { return own - others; }
  };

  int rank = 0;
  Work total;
  Cause cause = Cause::kData;  // the part with the larger excess
  Work part;                   // that part
};

// `ranks`: own work of two or more ranks in an interval of `seconds`. A rank is a straggler when its own work takes more than `ratio` times
// as long as that of the others, and longer by at least a tenth of the interval. Returns the slowest; empty if all wait for the exchange.
std::optional<Straggler> find_straggler(std::span<const distributed::OwnSeconds> ranks, double seconds, double ratio);

// One sentence that includes what to check. `process`: "process 31 on host-a, cuda:0".
std::string to_string(const Straggler& straggler, const std::string& process, int64_t num_steps);

}  // namespace trainer::supervision
