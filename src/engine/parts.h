#pragma once
// Everything that a run trains with; built from a configuration by src/session.

#include <memory>
#include <optional>

#include "amp/grad_scaler.h"
#include "device/placement.h"
#include "distributed/data_parallel.h"
#include "engine/data.h"
#include "engine/ranks.h"
#include "models/model.h"
#include "optim/ema.h"
#include "optim/optimizer.h"
#include "task/task.h"

namespace trainer::engine {

// What needs no data: the network with its task and optimizer.
struct Network {
  device::Placement placement;  // of the run, with the memory format that the network prefers where the configuration says `auto`
  at::Generator dropout_generator;
  std::shared_ptr<models::Model> model;  // on the placement's device
  std::unique_ptr<task::Task> task;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::optional<amp::GradScaler> grad_scaler;  // under float16 autocast
};

struct Parts : Network, Data {
  Ranks ranks;
  std::unique_ptr<distributed::DataParallel> data_parallel;  // of the model
  std::unique_ptr<optim::Ema> ema;                           // where training.ema asks for it
};

}  // namespace trainer::engine
