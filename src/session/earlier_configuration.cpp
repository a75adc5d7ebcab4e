#include "session/earlier_configuration.h"

#include "config/findings.h"

namespace trainer::session {

void adapt_to_earlier_version(config::Experiment& experiment) {
  auto& section = experiment.dataset;
  const bool holds_out = section.validation_split.value.value_or(0) > 0;
  if (holds_out && config::find_value(experiment.tree, "dataset.stratify") == nullptr) section.stratify = false;
}

}  // namespace trainer::session
