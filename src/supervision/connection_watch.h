#pragma once
// Notices that the connection between GPUs broke while the main thread waits for a GPU: the GPU then waits forever.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace trainer::supervision {

class ConnectionWatch {
 public:
  // Until its destruction, calls `error` several times a second on another thread. `on_lost` is called on that thread, at most once, with
  // the first text that is not empty.
  ConnectionWatch(std::function<std::string()> error, std::function<void(const std::string&)> on_lost);
  ~ConnectionWatch();

 private:
  void watch();

  const std::function<std::string()> error_;
  const std::function<void(const std::string&)> on_lost_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;  // guarded by the mutex
  std::thread thread_;
};

}  // namespace trainer::supervision
