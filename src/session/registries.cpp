#include "session/registries.h"

#include "datasets/registry.h"
#include "input/transforms.h"
#include "models/registry.h"
#include "nn/loss.h"
#include "optim/lr_scheduler.h"
#include "optim/optimizer.h"
#include "task/task.h"

namespace trainer::session {

config::Catalog make_catalog() {
  return {.models = models::model_family(),
          .datasets = datasets::dataset_family(),
          .transforms = input::transform_family(),
          .losses = nn::loss_family(),
          .optimizers = optim::optimizer_family(),
          .lr_schedulers = optim::lr_scheduler_family(),
          .monitor = task::monitor_choices()};
}

}  // namespace trainer::session
