#include "config/check.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainer::config {
namespace {

// The position of "section.key" in the file; that of the section, or of the file's beginning, if the key is not given.
Position position_of(const Node& root, const std::string& path) {
  const Node* node = &root;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const auto* member = node->find(path.substr(begin, end - begin));
    if (member == nullptr) break;
    node = &member->value;
    begin = end + 1;
  }
  return node->position;
}

}  // namespace

void check(const Experiment& experiment, const Node& root, Problems& problems) {
  const auto report = [&](const std::string& path, const std::string& what) { problems.add(position_of(root, path), path, what); };

  const auto& name = experiment.experiment;
  const bool names_a_folder = name.find('/') == std::string::npos && name != "." && name != ".." && !name.empty();
  if (root.find("experiment") != nullptr && !names_a_folder) {
    report("experiment", fmt::format("\"{}\" cannot name a folder; use letters, digits, - and _", name));
  }

  const auto& loader = experiment.dataloader;
  const int64_t micro_steps = experiment.training.accumulation_steps;
  if (loader.batch_size && loader.global_batch_size) {
    report("dataloader.global_batch_size", "given together with dataloader.batch_size; keep one of them");
  } else if (loader.global_batch_size && *loader.global_batch_size % micro_steps != 0) {
    report("dataloader.global_batch_size",
           fmt::format("{} is not a multiple of training.accumulation_steps = {}", *loader.global_batch_size, micro_steps));
  }

  if (experiment.lr_scheduler.warmup_steps > 0 && experiment.lr_scheduler.warmup_epochs > 0) {
    report("lr_scheduler.warmup_epochs", "given together with lr_scheduler.warmup_steps; keep one of them");
  }

  if (experiment.runtime.dtype == DtypeChoice::kFloat64 && experiment.amp.enabled.value.value_or(false)) {
    report("amp.enabled", "autocast lowers the precision that runtime.dtype: float64 asks for; choose one of them");
  }
}

}  // namespace trainer::config
