#pragma once
// The protocol of bench/peers/worker.py.

#include <chrono>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

namespace trainer::bench {

// Prints "ready" with the settings after one warm-up step, then answers each "go N" with the seconds of `run`(N) and the values that it
// returns.
inline void serve(const nlohmann::json& settings, const std::function<nlohmann::json(int64_t)>& run) {
  run(1);
  std::cout << "ready " << settings.dump() << std::endl;
  std::string command;
  for (int64_t count = 0; std::cin >> command >> count;) {
    const auto start = std::chrono::steady_clock::now();
    auto answer = run(count);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    answer["seconds"] = seconds.count();
    std::cout << answer.dump() << std::endl;
  }
}

}  // namespace trainer::bench
