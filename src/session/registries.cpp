#include "session/registries.h"

#include "datasets/registry.h"
#include "input/batch_transforms/batch_transform.h"
#include "input/samplers/sampler.h"
#include "input/transforms/transform.h"
#include "models/registry.h"
#include "nn/loss.h"
#include "optim/lr_scheduler.h"
#include "optim/optimizer.h"
#include "session/check.h"
#include "task/task.h"

namespace trainer::session {

config::Registries all_registries() {
  return {.models = models::model_registry(),
          .datasets = datasets::dataset_registry(),
          .transforms = input::transform_registry(),
          .batch_transforms = input::batch_transform_registry(),
          .losses = nn::loss_registry(),
          .optimizers = optim::optimizer_registry(),
          .lr_schedulers = optim::lr_scheduler_registry(),
          .samplers = input::sampler_registry(),
          .monitor = task::monitor_choices(),
          .check = [](config::Experiment& experiment, config::Findings& findings) { check_components(experiment, findings); }};
}

}  // namespace trainer::session
