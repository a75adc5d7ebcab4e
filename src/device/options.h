#pragma once

#include <cstdint>
#include <optional>

namespace trainer::device {

enum class DeviceChoice { kAuto, kCpu, kCuda };
enum class FloatType { kFloat32, kFloat64 };
enum class AutocastType { kBfloat16, kFloat16 };
// Of 3x3 convolutions with stride 1 on a CPU, see runtime.convolution.
enum class ConvolutionChoice { kAuto, kDirect, kWinograd2, kWinograd4 };

// What a program wants of its device. What is not set is chosen by choose_placement().
struct PlacementOptions {
  DeviceChoice device = DeviceChoice::kAuto;
  FloatType dtype = FloatType::kFloat32;
  std::optional<bool> autocast = {};  // not set: where bfloat16 is fast
  AutocastType autocast_dtype = AutocastType::kBfloat16;
  std::optional<int64_t> num_threads = {};  // not set: HostShare::num_threads
  std::optional<bool> channels_last = {};   // not set: but for float64
  std::optional<bool> pin_memory = {};      // not set: with a GPU
  std::optional<bool> allow_tf32 = {};      // not set: as LibTorch does, in convolutions alone
  ConvolutionChoice convolution = ConvolutionChoice::kAuto;
  bool fuse = true;  // batch normalisation with what follows it, on a CPU
  bool deterministic = false;
  bool cudnn_benchmark = true;  // without effect under `deterministic`
};

}  // namespace trainer::device
