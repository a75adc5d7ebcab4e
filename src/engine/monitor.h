#pragma once
// Which validation is the best.

#include <string>

#include "config/sections/checkpoint.h"
#include "reporting/events.h"

namespace trainer::engine {

class Monitor {
 public:
  // `has_classes`: of the loss, for `auto`.
  Monitor(const config::CheckpointSection& section, bool has_classes);

  // "validation/top1".
  const std::string& name() const { return name_; }
  bool is_better(const reporting::ValidationEvent& candidate, const reporting::ValidationEvent& best) const;

 private:
  double value_of(const reporting::ValidationEvent& event) const;

  config::Monitored monitored_;
  bool more_is_better_;
  std::string name_;
};

}  // namespace trainer::engine
