#pragma once
// Counter-based random numbers: a value depends only on its key and its position, not on worker threads, ranks or earlier draws.
// Philox4x32-10 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).

#include <array>
#include <cstdint>

namespace trainer {

// Ten rounds over one counter block; public for the known-answer tests.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A stream of numbers for one (seed, stream, substream). Cheap to make; not thread-safe.
class CounterRandom {
 public:
  CounterRandom(uint64_t seed, uint64_t stream, uint32_t substream = 0);

  uint32_t next_uint32();
  // Uniform in [0, 1), 24 bits.
  float next_float() { return static_cast<float>(next_uint32() >> 8) * 0x1.0p-24F; }
  // Uniform in {0, …, bound - 1}; bound >= 1. Multiply-shift: the bias is below bound / 2^32.
  uint32_t next_below(uint32_t bound) { return static_cast<uint32_t>((uint64_t{next_uint32()} * bound) >> 32); }
  // True with probability p.
  bool next_bool(double p) { return static_cast<double>(next_uint32()) * 0x1.0p-32 < p; }
  // Whether a number was drawn.
  bool is_used() const { return counter_[0] > 0; }

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_{};
  unsigned used_ = 4;
};

// SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014); ten times as fast as Philox.
inline uint64_t next_splitmix64(uint64_t& state) {
  uint64_t value = state += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

// Mixes several integers into one seed.
uint64_t mix_seed(uint64_t seed, uint64_t a, uint64_t b = 0);

}  // namespace trainer
