#pragma once
// A network, what its factory is given, and the registry's entry form.

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/key_table.h"
#include "nn/batch_norm.h"

namespace trainer::models {

class Model : public torch::nn::Module {
 public:
  // One batch, first dimension N; images are [N, C, H, W]. Returns [N, num_outputs].
  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
  // Shape of one input sample that the network was built for, such as {3, 32, 32}; -1: any size.
  virtual std::vector<int64_t> input_shape() const = 0;
  virtual int64_t num_outputs() const = 0;
  // Whether NHWC order in memory makes it faster; runtime.channels_last: auto follows it.
  virtual bool prefers_channels_last() const { return true; }
};

// Handed to a factory. Networks are built on the CPU in float32 and moved by the caller.
struct BuildContext {
  at::Generator init_generator;     // CPU; every initial value comes from it
  at::Generator dropout_generator;  // on the training device; reseeded by the train step before each step
  nn::NormFactory norm;
};

struct ModelEntry {
  config::PartKind kind;
  std::function<std::shared_ptr<Model>(const config::Options& options, const BuildContext& context)> make;
};

// An entry whose factory takes the entry's own options type.
template <class O>
ModelEntry model_entry(std::string name, std::string doc, std::function<std::shared_ptr<Model>(const O&, const BuildContext&)> make) {
  return {{std::move(name), std::move(doc), [] { return std::make_unique<O>(); }},
          [make = std::move(make)](const config::Options& options, const BuildContext& context) {
            return make(dynamic_cast<const O&>(options), context);
          }};
}

}  // namespace trainer::models
