#pragma once
// The checks of `trainer doctor`.

#include <chrono>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "commands/doctor/judge.h"

namespace trainer::doctor {

// The state that the checks examine.
struct Subject {
  std::filesystem::path output_dir;
  Gpus gpus;
};

struct Check {
  const char* name;
  std::chrono::milliseconds limit;
  std::vector<Finding> (*run)(const Subject& subject);
};
// In the order of the output.
std::span<const Check> all_checks();

// The findings of `check`, or a finding that there was no result within the check's limit. The check's thread then continues with a copy of
// the subject, and the process should end without waiting for it. An exception becomes a failed finding.
std::vector<Finding> run(const Check& check, const Subject& subject);

// The driver and the GPUs, for Subject::gpus; to be called before the checks. A driver that does not respond is reported in Gpus::refusal.
Gpus find_gpus();

}  // namespace trainer::doctor
