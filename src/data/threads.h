#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <semaphore>
#include <thread>
#include <vector>

namespace trainer::data {

// Calls work(i, memory) for each i below `size` on several threads, each with a Memory of its own. The calling thread calls `may_continue`
// many times a second with the number of calls that are done; if it returns false, the rest is skipped. Rethrows the exception
// of the smallest i.
template <class Memory, class Work>
void for_each_in_threads(size_t size, int num_threads, const std::function<bool(size_t num_done)>& may_continue, const Work& work) {
  constexpr std::chrono::milliseconds kInterval{5};
  std::counting_semaphore<> finished(0);  // released when nothing is left to do
  std::atomic<size_t> next = 0, num_done = 0;
  std::mutex mutex;  // guards the failure
  size_t failed = size;
  std::exception_ptr failure;
  const auto run = [&](const std::stop_token& stop) {
    size_t i = 0;
    try {
      Memory memory;
      while (!stop.stop_requested() && (i = next++) < size) {
        work(i, memory);
        if (++num_done == size) finished.release();
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure || i < failed) failure = std::current_exception();
      failed = std::min(failed, i);
      next = num_done = size;
      finished.release();
    }
  };
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < std::min(size, static_cast<size_t>(num_threads)); ++i) threads.emplace_back(run);
  while (num_done < size && may_continue(num_done)) finished.try_acquire_for(kInterval);
  threads.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace trainer::data
