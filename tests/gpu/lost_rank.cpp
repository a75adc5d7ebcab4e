// An application whose rank 1 leaves: the other rank prints what it sees. Started by test_two_gpus.py like a rank of torchrun.

#include <ATen/ATen.h>
#include <unistd.h>

#include <cstdio>

#include "trainer/distributed.h"
#include "trainer/error.h"

namespace {

void train(trainer::distributed::Context& run) {
  // Two groups have collectives in flight when the rank leaves.
  const auto other = run.new_group({0, 1});
  for (int step = 0;; ++step) {
    const auto values = at::ones({4}, run.device());
    run.world()->all_reduce(values);
    other->all_reduce(values);
    // Waits for the GPU.
    values.sum().item<float>();
    if (step == 3 && run.rank() == 1) _exit(9);
  }
}

}  // namespace

int main() {
  auto run = trainer::distributed::init_process_group({.timeout = std::chrono::seconds(4)});
  try {
    train(*run);
  } catch (const trainer::PeerError& error) {
    std::puts(error.what());
  }
  run.reset();
  std::puts("the groups are closed");
}
