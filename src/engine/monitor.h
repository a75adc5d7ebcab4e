#pragma once
// Which validation is the best.

#include <string>

#include "config/sections/checkpoint.h"
#include "reporting/events.h"
#include "task/task.h"

namespace trainer::engine {

class Monitor {
 public:
  // `section.monitor` is `auto` or names a metric of the task.
  Monitor(const config::CheckpointSection& section, const task::Task& task);

  // "validation/loss".
  std::string name() const { return "validation/" + metric_; }
  // A validation with the metric is better than one without, which a checkpoint of an earlier version may hold.
  bool is_better(const reporting::ValidationEvent& candidate, const reporting::ValidationEvent& best) const;

 private:
  std::string metric_;
  bool higher_is_better_;
};

}  // namespace trainer::engine
