// The peak float32 performance of all cores together, measured with sums and products in registers; bench.py relates the speed of a step to
// it. Prints GFLOP/s.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "launch/world/host_resources.h"

// Compiled once for each instruction set that Highway supports; the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/bench_peak.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace trainer::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Computes enough independent sums to hide the latency of an instruction. Returns the number of operations; `result` keeps the compiler
// from omitting them.
double multiply_and_add(int64_t rounds, float* result) {
  constexpr int kSums = 12;
  const hn::ScalableTag<float> tag;
  using V = hn::Vec<decltype(tag)>;
  const V factor = hn::Set(tag, 0.999F);
  const V addend = hn::Set(tag, 0.001F);
  V sums[kSums];
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) sums[i] = hn::Set(tag, static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sums[i] = hn::MulAdd(sums[i], factor, addend);
  }
  V total = sums[0];
  for (int i = 1; i < kSums; ++i) total = hn::Add(total, sums[i]);
  *result = hn::GetLane(hn::SumOfLanes(tag, total));
  return 2.0 * kSums * static_cast<double>(hn::Lanes(tag)) * static_cast<double>(rounds);
}

}  // namespace trainer::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer::bench {

HWY_EXPORT(multiply_and_add);

// Returns the operations per second of all cores together.
double measure(int num_threads) {
  constexpr int64_t kRounds = 20'000'000;
  std::vector<std::thread> threads;
  std::vector<double> operations(static_cast<size_t>(num_threads));
  std::vector<float> results(static_cast<size_t>(num_threads));
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < operations.size(); ++i) {
    threads.emplace_back([&, i] { operations[i] = HWY_DYNAMIC_DISPATCH(multiply_and_add)(kRounds, &results[i]); });
  }
  for (auto& thread : threads) thread.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  double sum = 0;
  for (const double of_thread : operations) sum += of_thread;
  return sum / seconds.count();
}

}  // namespace trainer::bench

int main() {
  const int num_threads = static_cast<int>(trainer::world::available_cpus());
  double best = 0;
  // The best of several runs, because other processes can only make a run slower.
  for (int i = 0; i < 5; ++i) best = std::max(best, trainer::bench::measure(num_threads));
  fmt::print("{:.1f}\n", best / 1e9);
}
#endif
