#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace trainer::distributed {

// What keeps a rank from going on; empty text: nothing.
struct Problem {
  std::string text;
  int exit_code = 0;
};

// Throws one Error when any rank has a problem: each problem once, with its rank unless that is rank 0 or all have the same one; the
// exit code is the first one's.
void throw_if_any(const std::vector<Problem>& problems);

// Lets all ranks take the steps of a start together, or end together with what went wrong reported once. Over the store that they share,
// so it works before there are process groups.
class StartupBarrier {
 public:
  // Of one process.
  StartupBarrier() = default;
  StartupBarrier(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, std::chrono::milliseconds timeout);
  ~StartupBarrier();

  // Collective: does `work` on every rank. When an Error is thrown on any of them, one is thrown on all: with its text on rank 0, without
  // on the others. Other exceptions pass through.
  void on_all_ranks(const std::function<void()>& work);
  // As on_all_ranks(); gives all ranks what `work` has returned on each, by rank.
  std::vector<std::string> gather(const std::function<std::string()>& work);
  // Collective: does `work` on rank 0 and gives all ranks its result, or its Error as on_all_ranks() does.
  std::string on_rank0(const std::function<std::string()>& work);

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  int rank_ = 0;
  int world_size_ = 1;
  std::chrono::milliseconds timeout_{0};
  int num_steps_ = 0;
};

}  // namespace trainer::distributed
