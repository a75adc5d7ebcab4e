#pragma once

#include "trainer/keys.h"

namespace trainer::config {

struct ModelSection {
  ComponentConfig component;
  std::string init_from = {};
  bool init_strict = true;
  std::vector<std::string> freeze = {};

  void describe(KeyTable& keys, const RegistryBase& models) {
    keys.add_component("name", component, models, "", "The network; `trainer list models` shows them.");
    keys.add("init_from", init_from,
             {.doc = "A file whose parameters and buffers training begins with, by their names: a state_dict of PyTorch, safetensors, or a "
                     "checkpoint; empty: none.",
              .is_path = true});
    keys.add("init_strict", init_strict,
             {.doc = "Refuse a file in which something is missing, unexpected or of another shape; false: load what fits, such as all "
                     "but a head for other classes, and log what was skipped."});
    keys.add("freeze", freeze,
             {.doc = "Layers and parameters, by their names or the beginnings of them up to a dot, as in [conv1, layer1]: their parameters "
                     "stay as they are, and so do the running statistics of their batch normalisation, which are used in training too. "
                     "`trainer validate` shows all names.",
              .may_be_empty = false});
  }
};

}  // namespace trainer::config
