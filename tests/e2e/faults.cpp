// Loaded into a rank before LibTorch (LD_PRELOAD), this library makes the rank fail or be slow at a given point: when it computes the loss
// for the n-th time in training or validation, when it gathers the meters for a checkpoint, when its loader has a batch ready, or in the
// system calls of faults_system.cpp.

#include "faults.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

namespace {

Fault read_fault() {
  Fault fault;
  const char* text = std::getenv("TRAINER_TEST_FAULT");
  std::istringstream(text != nullptr ? text : "") >> fault.rank >> fault.phase >> fault.number >> fault.action;
  const char* rank = nullptr;
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (rank == nullptr) rank = std::getenv(name);
  }
  if (rank == nullptr || (fault.rank != rank && fault.rank != "all")) fault.number = -1;
  return fault;
}

at::Tensor fail(const std::string& action, const at::Tensor& loss) {
  act(action);
  if (action == "nan") return loss * std::numeric_limits<double>::quiet_NaN();
  if (action == "no_memory") return at::empty({int64_t{1} << 50}, at::kFloat);
  return loss;
}

void be_slow() { std::this_thread::sleep_for(std::chrono::milliseconds(500)); }

// Whether the address is in libtrainer.so, which the program loads for training.
bool is_of_program(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 && std::string_view(info.dli_fname).find("/libtrainer.so.") != std::string_view::npos;
}

}  // namespace

void act(const std::string& action) {
  // Waits, because the other ranks know this rank's activity only after its next heartbeat.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  if (action == "throw") throw std::runtime_error("a planted exception");
  if (action == "exit") _exit(3);
  if (action == "abort") std::abort();
  if (action == "segv") raise(SIGSEGV);
  if (action == "kill") raise(SIGKILL);
  if (action == "stop") raise(SIGSTOP);
  if (action == "wait") std::this_thread::sleep_for(std::chrono::seconds(2));
  if (action == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
  if (action == "limit_memory") limit_memory();
  if (action == "lose_data") lose_mapped_data();
}

const Fault& planted_fault() {
  static const Fault fault = read_fault();
  return fault;
}

at::Tensor at::_ops::cross_entropy_loss::call(const at::Tensor& self, const at::Tensor& target, const ::std::optional<at::Tensor>& weight,
                                              int64_t reduction, c10::SymInt ignore_index, double label_smoothing) {
  static const auto real = c10::Dispatcher::singleton().findSchemaOrThrow("aten::cross_entropy_loss", "").typed<schema>();
  const Fault& fault = planted_fault();
  static int num_training = 0;
  static int num_validation = 0;
  static bool is_inside = false;
  // Ignores the inner call: autocast calls this function again with other types.
  if (is_inside) return real.call(self, target, weight, reduction, ignore_index, label_smoothing);
  is_inside = true;
  const auto loss = real.call(self, target, weight, reduction, ignore_index, label_smoothing);
  is_inside = false;
  const bool is_training = at::GradMode::is_enabled();
  const int number = is_training ? num_training++ : num_validation++;
  if (fault.number < 0 || fault.phase != (is_training ? "training" : "validation")) return loss;
  if (fault.action != "slow") return number == fault.number ? fail(fault.action, loss) : loss;
  if (number >= fault.number) be_slow();
  return loss;
}

// The program calls this operator with `copy` on a float64 tensor only to copy the sums of the meters.
at::Tensor at::_ops::to_dtype_layout::call(const at::Tensor& self, ::std::optional<at::ScalarType> dtype,
                                           ::std::optional<at::Layout> layout, ::std::optional<at::Device> device,
                                           ::std::optional<bool> pin_memory, bool non_blocking, bool copy,
                                           ::std::optional<at::MemoryFormat> memory_format) {
  static const auto real = c10::Dispatcher::singleton().findSchemaOrThrow("aten::to", "dtype_layout").typed<schema>();
  static int num_checkpoints = 0;
  const Fault& fault = planted_fault();
  if (copy && self.scalar_type() == at::kDouble && fault.phase == "checkpoint" && num_checkpoints++ == fault.number) act(fault.action);
  return real.call(self, dtype, layout, device, pin_memory, non_blocking, copy, memory_format);
}

// During training, besides the main thread, only the loader's threads call notify_one from the program's code.
void std::condition_variable::notify_one() noexcept {
  static const auto real =
      reinterpret_cast<void (*)(std::condition_variable*)>(dlsym(RTLD_NEXT, "_ZNSt18condition_variable10notify_oneEv"));
  const Fault& fault = planted_fault();
  static std::atomic<int> num_ready = 0;
  const bool is_loading = gettid() != getpid() && is_of_program(__builtin_return_address(0));
  if (is_loading && fault.number >= 0 && fault.phase == "loading" && num_ready++ >= fault.number) be_slow();
  real(this);
}
