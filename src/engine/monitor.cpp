#include "engine/monitor.h"

namespace trainer::engine {
namespace {

const char* name_of(config::Monitored monitored) {
  switch (monitored) {
    case config::Monitored::kAuto:
    case config::Monitored::kLoss:
      return "validation/loss";
    case config::Monitored::kTop1:
      return "validation/top1";
    case config::Monitored::kTop5:
      return "validation/top5";
    case config::Monitored::kMacroF1:
      return "validation/macro_f1";
  }
  return "";
}

}  // namespace

Monitor::Monitor(const config::CheckpointSection& section, bool has_classes) : monitored_(section.monitor) {
  if (monitored_ == config::Monitored::kAuto) monitored_ = has_classes ? config::Monitored::kTop1 : config::Monitored::kLoss;
  more_is_better_ =
      section.mode == config::MonitorMode::kAuto ? monitored_ != config::Monitored::kLoss : section.mode == config::MonitorMode::kMax;
  name_ = name_of(monitored_);
}

bool Monitor::is_better(const reporting::ValidationEvent& candidate, const reporting::ValidationEvent& best) const {
  return more_is_better_ ? value_of(candidate) > value_of(best) : value_of(candidate) < value_of(best);
}

double Monitor::value_of(const reporting::ValidationEvent& event) const {
  switch (monitored_) {
    case config::Monitored::kTop1:
      return event.top1.value();
    case config::Monitored::kTop5:
      return event.top5.value();
    case config::Monitored::kMacroF1:
      return event.macro_f1.value();
    default:
      return event.loss;
  }
}

}  // namespace trainer::engine
