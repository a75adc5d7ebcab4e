#pragma once
// The keys that name layers and parameters of the network: model.freeze and optimizer.groups.

#include <functional>

#include "config/experiment.h"
#include "trainer/model.h"

namespace trainer::session {

// Freezes what model.freeze names: these parameters require no gradients, and batch normalisation in these layers uses and keeps its
// running statistics in training. Changes nothing and throws one UsageError with all that is wrong: names in model.freeze and
// optimizer.groups that the network does not have, items of optimizer.groups without a parameter of their own to train, and a network that
// is frozen as a whole. Returns a function that lets the parameters be trained again; the statistics stay as they are.
std::function<void()> freeze(const config::Experiment& experiment, models::Model& model);

}  // namespace trainer::session
