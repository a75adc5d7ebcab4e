#pragma once

#include "config/experiment.h"
#include "reporting/sinks.h"
#include "run/session/session.h"

namespace trainer::commands {

// What TensorBoard shows of a run that has not begun to train, on rank 0. `config_text`: of the resolved configuration.
reporting::TensorboardRun describe_for_tensorboard(const config::Experiment& experiment, const std::string& config_text,
                                                   session::Session& session, Logger& logger);

}  // namespace trainer::commands
