#pragma once
// Checks the keys with names of layers and parameters, model.freeze and optimizer.groups, and applies model.freeze.

#include <functional>

#include "config/experiment.h"
#include "trainer/model.h"

namespace trainer::session {

// Freezes the layers and parameters in model.freeze: the parameters require no gradients, and batch normalisation in these layers uses and
// keeps its running statistics in training. Returns a function that makes the parameters trainable again; the statistics stay frozen.
// Throws UsageError with all problems of the names: unknown names in model.freeze and optimizer.groups, items of optimizer.groups without a
// trained parameter of their own, and a network that is completely frozen; also for a batch normalisation of LibTorch in model.freeze.
std::function<void()> freeze(const config::Experiment& experiment, models::Model& model);

}  // namespace trainer::session
