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

// Lets all ranks take the steps of a start together, or end together with what went wrong said once. Over the store that they share,
// so it works before there are process groups.
class Assembly {
 public:
  // Of one process.
  Assembly() = default;
  Assembly(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, std::chrono::milliseconds timeout);
  ~Assembly();

  // Collective: does `work` on every rank. When an Error is thrown on any of them, one is thrown on all: with its text on rank 0, without
  // on the others. Other exceptions pass through.
  void together(const std::function<void()>& work);
  // Collective: does `work` on rank 0 and gives all ranks its result, or its Error as together() does.
  std::string by_first(const std::function<std::string()>& work);

 private:
  std::string agree(const std::function<std::string()>& work);

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_ = 0;
  int world_size_ = 1;
  std::chrono::milliseconds timeout_{0};
  int num_steps_ = 0;
};

}  // namespace trainer::distributed
