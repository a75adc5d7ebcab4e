#pragma once
// The protocol of bench/peers/worker.py.

#include <chrono>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

namespace trainer::bench {

// Prints "ready" with the settings after one step as warm-up, then answers each "go N" with the seconds that `run`(N) took.
inline void serve(const nlohmann::json& settings, const std::function<void(int64_t)>& run) {
  run(1);
  std::cout << "ready " << settings.dump() << std::endl;
  std::string command;
  for (int64_t count = 0; std::cin >> command >> count;) {
    const auto start = std::chrono::steady_clock::now();
    run(count);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::cout << nlohmann::json{{"seconds", seconds.count()}}.dump() << std::endl;
  }
}

}  // namespace trainer::bench
