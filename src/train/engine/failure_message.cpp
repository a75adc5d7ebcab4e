#include "train/engine/failure_message.h"

#include <fmt/format.h>

namespace trainer::engine {

std::string describe_failure(const std::exception& error, const Parts& parts) {
  const auto activity = parts.ranks.activity->read();
  const auto where = describe(activity);
  if (!is_out_of_memory(error)) {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    return fmt::format("{}: {}", where, torch_error != nullptr ? torch_error->what_without_backtrace() : error.what());
  }
  if (activity.phase == distributed::Phase::kValidation) {
    return fmt::format("out of memory in validation at batch_size {}; lower validation.batch_size",
                       parts.validation->batches->batch_size());
  }
  if (activity.phase == distributed::Phase::kStartUp) {
    return fmt::format(
        "out of memory in start-up, with {} training samples and batch_size {}; lower dataloader.batch_size, or choose a smaller data set",
        parts.train.samples.size(), parts.plan.batch_size);
  }
  return fmt::format(
      "out of memory in {} at batch_size {}; lower dataloader.batch_size and raise training.accumulation_steps by the same factor", where,
      parts.plan.batch_size);
}

}  // namespace trainer::engine
