#include "supervision/connection_watch.h"

#include <chrono>
#include <utility>

namespace trainer::supervision {
namespace {

constexpr std::chrono::milliseconds kAskInterval{200};

}  // namespace

ConnectionWatch::ConnectionWatch(std::function<std::string()> error, std::function<void(const std::string&)> on_lost)
    : error_(std::move(error)), on_lost_(std::move(on_lost)), thread_([this] { watch(); }) {}

ConnectionWatch::~ConnectionWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    over_.notify_all();
  }
  thread_.join();
}

void ConnectionWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    lock.unlock();
    if (const auto error = error_(); !error.empty()) {
      on_lost_(error);
      return;
    }
    lock.lock();
    over_.wait_for(lock, kAskInterval, [this] { return is_over_; });
  }
}

}  // namespace trainer::supervision
