#pragma once
// What the GPUs of a host mean for training. Functions of their arguments alone.

#include <string>
#include <vector>

#include "commands/doctor/finding.h"
#include "device/cuda_module.h"

namespace trainer::doctor {

struct Gpus {
  bool has_driver = false;
  std::string refusal;       // why a driver that is there cannot be used; empty: it can
  device::GpuReport report;  // without GPUs if none can be used

  int count() const { return static_cast<int>(report.gpus.size()); }
};

Finding judge_driver(const Gpus& gpus);
// One finding for each GPU.
std::vector<Finding> judge_gpus(const Gpus& gpus);
// None with fewer than two GPUs.
std::vector<Finding> judge_links(const Gpus& gpus);

}  // namespace trainer::doctor
