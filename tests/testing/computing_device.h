#pragma once
// A device of LibTorch that computes with the CPU's kernels, in memory that counts as the device's own. With it, tests run the program's
// code for GPUs on real values. Only one file of a test program may include this header. Its CUDA graphs (recording_module()) behave like
// real ones except for streams and memory: while a graph is recorded, nothing is computed and no value can be read; a replay reads and
// writes the recorded tensors.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "device/cuda_module.h"
#include "tests/testing/gpu_kernels_on_cpu.h"
#include "trainer/torch.h"

namespace trainer::testing::computing {

inline const c10::Device kDevice{c10::DeviceType::PrivateUse1, 0};

// One device with one stream, on which work is done immediately.
class Guard final : public c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::PrivateUse1> {
 public:
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  void synchronizeDevice(c10::DeviceIndex) const override {}
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// Returns a tensor on `device` that shares the memory of `tensor` and keeps it alive.
inline at::Tensor view_on(const at::Tensor& tensor, c10::Device device) {
  const auto& storage = tensor.storage();
  auto* const held = new c10::Storage(storage);
  c10::DataPtr data(
      storage.mutable_data(), held, [](void* pointer) { delete static_cast<c10::Storage*>(pointer); }, device);
  c10::Storage viewed(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data), c10::GetAllocator(torch::kCPU),
                      /*resizable=*/true);
  const auto key = device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::PrivateUse1;
  auto view = at::detail::make_tensor<c10::TensorImpl>(std::move(viewed), c10::DispatchKeySet(key), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return view;
}

// The device's random numbers, which a generator of the CPU draws.
class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(at::Generator cpu)
      : GeneratorImpl(kDevice, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)), on_cpu(std::move(cpu)) {}
  void set_current_seed(uint64_t seed) override { on_cpu.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { on_cpu.set_offset(offset); }
  uint64_t get_offset() const override { return on_cpu.get_offset(); }
  uint64_t current_seed() const override { return on_cpu.current_seed(); }
  uint64_t seed() override { return on_cpu.seed(); }
  void set_state(const c10::TensorImpl& state) override { on_cpu.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return on_cpu.unsafeGetGeneratorImpl()->get_state(); }

  at::Generator on_cpu;

 private:
  GeneratorImpl* clone_impl() const override { return new Generator(on_cpu.clone()); }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const auto generator = at::make_generator<Generator>(at::make_generator<at::CPUGeneratorImpl>());
    return generator;
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return getDefaultGenerator(0).clone(); }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
};

using Stack = torch::jit::Stack;

// Replaces each tensor of a value, also in lists.
template <typename Replace>
c10::IValue with_tensors(const c10::IValue& value, const Replace& replace) {
  if (value.isTensor()) return replace(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorList()) tensors.push_back(replace(tensor));
    return tensors;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      tensors.push_back(tensor ? std::optional(replace(*tensor)) : std::nullopt);
    }
    return tensors;
  }
  return value;
}

// Calls an operator of the CPU. `is_dry`: with copies of the arguments, so that the call changes nothing.
inline Stack call_on_cpu(const c10::OperatorHandle& op, const Stack& arguments, bool is_dry) {
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;  // on the CPU, on the device
  const auto to_cpu = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_privateuseone()) return tensor;
    for (const auto& [on_cpu, on_device] : pairs) {
      if (on_device.is_same(tensor)) return on_cpu;
    }
    const auto view = view_on(tensor, torch::kCPU);
    pairs.emplace_back(is_dry ? view.clone() : view, tensor);
    return pairs.back().first;
  };
  Stack stack;
  for (const auto& argument : arguments) {
    if (argument.isDevice() && argument.toDevice() == kDevice) {
      stack.emplace_back(c10::Device(torch::kCPU));
    } else if (argument.isGenerator() && argument.toGenerator().device() == kDevice) {
      const auto& on_cpu = static_cast<const Generator*>(argument.toGenerator().unsafeGetGeneratorImpl())->on_cpu;
      stack.emplace_back(is_dry ? on_cpu.clone() : on_cpu);
    } else {
      stack.push_back(with_tensors(argument, to_cpu));
    }
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  const auto to_device = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    for (const auto& [on_cpu, on_device] : pairs) {
      if (!on_cpu.is_same(tensor)) {
        TORCH_CHECK(!on_cpu.is_alias_of(tensor), op.schema().name(), ": its result shares the memory of an argument");
        continue;
      }
      if (!on_cpu.sizes().equals(on_device.sizes()))
        on_device.unsafeGetTensorImpl()->shallow_copy_from(view_on(tensor, kDevice).getIntrusivePtr());
      return on_device;
    }
    return view_on(tensor, kDevice);
  };
  for (auto& result : stack) result = with_tensors(result, to_device);
  return stack;
}

// What a replay does.
inline std::vector<std::function<void()>>* recording = nullptr;
// The number of operators after which a recording fails.
inline size_t most_recorded = std::numeric_limits<size_t>::max();

inline void write(const c10::IValue& from, const c10::IValue& to) {
  std::vector<at::Tensor> tensors;
  const auto collect = [&](const at::Tensor& tensor) { return tensors.push_back(tensor), tensor; };
  with_tensors(from, collect);
  const auto num_tensors = tensors.size();
  with_tensors(to, collect);
  for (size_t i = 0; i < num_tensors; ++i) {
    const auto& target = tensors[num_tensors + i];
    if (tensors[i].defined() && !tensors[i].is_same(target)) view_on(target, torch::kCPU).copy_(view_on(tensors[i], torch::kCPU));
  }
}

inline void record(const c10::OperatorHandle& op, const Stack& arguments, const Stack& results) {
  TORCH_CHECK(recording->size() < most_recorded, "the recording was interrupted");
  recording->push_back([=] {
    const auto again = call_on_cpu(op, arguments, /*is_dry=*/false);
    for (size_t i = 0; i < again.size(); ++i) write(again[i], results[i]);
  });
}

// CudaModule::record_graph
inline std::function<void()> record_graph(const std::vector<at::Generator>& /*generators*/, const std::function<void()>& work) {
  std::vector<std::function<void()>> runs;
  recording = &runs;
  try {
    work();
  } catch (...) {
    recording = nullptr;
    throw;
  }
  recording = nullptr;
  return [runs = std::move(runs)] {
    for (const auto& run : runs) run();
  };
}

// CudaModule::launch
inline void launch(const void* kernel, int /*device*/, const device::LaunchShape& shape, const void* argument) {
  const auto& known = *static_cast<const on_cpu::Kernel*>(kernel);
  if (recording == nullptr) return on_cpu::run(known, shape, argument);
  const auto* bytes = static_cast<const char*>(argument);
  recording->push_back(
      [&known, shape, copy = std::vector<char>(bytes, bytes + known.argument_size)] { on_cpu::run(known, shape, copy.data()); });
}

// A CUDA module whose graphs are recordings, with the kernels of gpu_kernels_on_cpu.h.
inline const device::CudaModule* recording_module() {
  static constexpr device::CudaModule kModule{
      .peak_memory = [](int) { return uint64_t{0}; }, .record_graph = &record_graph, .compile = &on_cpu::compile, .launch = &launch};
  return &kModule;
}

// The fallback for all operators that are not registered below.
inline void call(const c10::OperatorHandle& op, Stack* stack) {
  auto used = op;
  Stack arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  const auto& name = op.schema().name();
  const auto find = [](const char* other) { return c10::Dispatcher::singleton().findSchemaOrThrow(other, ""); };
  if (name == "aten::convolution_overrideable") used = find("aten::convolution");
  if (name == "aten::convolution_backward_overrideable") {
    used = find("aten::convolution_backward");
    arguments.insert(arguments.begin() + 3, c10::IValue());  // the shape of a bias; empty: none
  }
  TORCH_CHECK(recording == nullptr || name != "aten::_local_scalar_dense", "a value was read in a recording");
  auto results = call_on_cpu(used, arguments, recording != nullptr);
  if (recording != nullptr) record(used, arguments, results);
  stack->insert(stack->end(), results.begin(), results.end());
}

// Keeps the memory of a new tensor as long as a recording exists, which may launch kernels on its address.
inline at::Tensor keep(const at::Tensor& tensor) {
  if (recording != nullptr) recording->push_back([tensor] {});
  return tensor;
}

inline at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device>,
                        std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return keep(view_on(at::empty(size, at::TensorOptions().dtype(dtype), format), kDevice));
}

inline at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                                std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return keep(view_on(at::empty_strided(size, strides, at::TensorOptions().dtype(dtype)), kDevice));
}

inline at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool /*non_blocking*/) {
  static const auto kCopy = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  TORCH_CHECK(recording == nullptr || from.device() == to.device(), "a copy between host and device in a recording");
  const Stack arguments{to, from, false};
  const auto results = call_on_cpu(kCopy, arguments, recording != nullptr);
  if (recording != nullptr) record(kCopy, arguments, results);
  return to;
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&call>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("_copy_from", &copy_from);
  library.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&call>());
  library.impl("convolution_backward_overrideable", torch::CppFunction::makeFromBoxedFunction<&call>());
  // Module::to gives a parameter data on another device, which LibTorch allows only if this returns true.
  library.impl(
      "_has_compatible_shallow_copy_type", +[](const at::Tensor&, const at::Tensor&) { return true; });
}

[[maybe_unused]] inline const bool is_registered = [] {
  // autograd uses the device as the accelerator only if it has a name.
  c10::register_privateuse1_backend("computing");
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace trainer::testing::computing
