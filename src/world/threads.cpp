#include "world/threads.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <vector>

#include "base/text.h"
#include "trainer/error.h"
#include "world/cgroup.h"

namespace trainer::world {
namespace {

std::string describe_refusal() {
  return fmt::format(
      "no more threads can be started: {}; raise the limit, end other processes, or set fewer runtime.threads and dataloader.num_workers",
      describe_process_limits());
}

void* wait_for_end(void* is_over) {
  static_cast<std::atomic<bool>*>(is_over)->wait(false);
  return nullptr;
}

}  // namespace

std::string describe_process_limits() {
  std::vector<std::string> limits;
  rlimit user{};
  if (getrlimit(RLIMIT_NPROC, &user) == 0 && user.rlim_cur != RLIM_INFINITY) {
    limits.push_back(fmt::format("user {} may have {} processes and threads together (ulimit -u)", geteuid(), user.rlim_cur));
  }
  if (const auto group = cgroup_processes()) limits.push_back(fmt::format("this control group may have {} (pids.max)", *group));
  return limits.empty() ? "the limit is the system's (threads-max, or its memory)" : join(limits, ", and ");
}

void check_threads(int count) {
  std::atomic<bool> is_over{false};
  std::vector<pthread_t> threads;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  // They only wait, and must not need the address space of many stacks of the usual size.
  constexpr size_t kStackSize = size_t{1} << 20;
  pthread_attr_setstacksize(&attributes, kStackSize);
  int error = 0;
  for (int i = 0; i < count && error == 0; ++i) {
    pthread_t thread{};
    error = pthread_create(&thread, &attributes, &wait_for_end, &is_over);
    if (error == 0) threads.push_back(thread);
  }
  pthread_attr_destroy(&attributes);
  is_over = true;
  is_over.notify_all();
  for (const auto thread : threads) pthread_join(thread, nullptr);
  if (error == EAGAIN) throw Error(describe_refusal());
}

std::string explain_thread_limit(const std::exception& error) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  return system != nullptr && system->code() == std::errc::resource_unavailable_try_again ? describe_refusal() : "";
}

}  // namespace trainer::world
