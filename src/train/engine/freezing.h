#pragma once
// Which parameters of a network are trained: the keys with names of layers and parameters, model.freeze and optimizer.groups.

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/model.h"
#include "trainer/options.h"

namespace trainer::engine {

// For messages: names the place of a key, such as "model.freeze[0]", in the experiment file; returns the key if there is none.
using PlaceOf = std::function<std::string(const std::string& key)>;
inline std::string key_itself(const std::string& key) { return key; }

// Freezes the layers and parameters in `options.freeze`: the parameters require no gradients, and batch normalisation in these layers uses
// and keeps its running statistics in training. Returns the parameters. Throws UsageError with all problems of the names: unknown names in
// `freeze` and `groups`, items of `groups` without a trained parameter of their own, and a network that is completely frozen; also for a
// batch normalisation of LibTorch among the frozen layers. `network`: for messages, such as "the network resnet18".
std::vector<torch::Tensor> freeze(const optim::ParameterOptions& options, models::Model& model, const std::string& network,
                                  const PlaceOf& place_of);

// Parameters that are frozen in the first epochs only.
struct FrozenAtFirst {
  int64_t num_epochs = 0;
  std::vector<torch::Tensor> parameters = {};

  // If they are trained in epoch number `epoch` (from 0), makes them trainable. Returns whether this has changed them.
  bool end_in(int64_t epoch) const;
};

}  // namespace trainer::engine
