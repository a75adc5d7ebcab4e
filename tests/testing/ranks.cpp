#include "tests/testing/ranks.h"

#include <ATen/Parallel.h>

#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

namespace trainer::testing {

void run_ranks(int world_size, const std::function<void(distributed::ProcessGroups&)>& rank_main) {
  // LibTorch's flight recorder is global and does not support ranks as threads.
  setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::mutex mutex;
  std::exception_ptr first_error;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      try {
        // Only a hang exceeds this limit.
        distributed::ProcessGroups groups(store, rank, world_size,
                                          {.timeout = std::chrono::minutes(1),
                                           .activity = std::make_shared<distributed::Activity>(),
                                           .ranks = std::vector(static_cast<size_t>(world_size), distributed::this_process())});
        rank_main(groups);
        groups.shutdown();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first_error) first_error = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace trainer::testing
