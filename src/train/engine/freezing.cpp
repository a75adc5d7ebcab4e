#include "train/engine/freezing.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "checkpoint/state/names.h"
#include "inference/weights_by_name.h"
#include "nn/batch_norm.h"
#include "trainer/error.h"
#include "trainer/state.h"

namespace trainer::engine {
namespace {

// The part of a name before the first dot.
std::string outermost(const std::string& name) { return name.substr(0, name.find('.')); }

constexpr const char* kBackbone = "backbone";

// The layers and parameters of a network that model.freeze and optimizer.groups name.
class Names {
 public:
  Names(const optim::ParameterOptions& options, const models::Model& model, const std::string& network, const PlaceOf& place_of)
      : options_(options), network_(network), place_of_(place_of) {
    for (const auto& item : model.named_modules("", /*include_self=*/false)) layers_.insert(item.key());
    for (const auto& item : model.named_parameters()) {
      const auto& name = item.key();
      parameters_.push_back(name);
      for (auto end = name.find('.'); end != std::string::npos; end = name.find('.', end + 1)) add_known(name.substr(0, end));
      add_known(name);
    }
    if (std::ranges::find(options.freeze, kBackbone) == options.freeze.end() || model.named_children().contains(kBackbone)) return;
    head_ = inference::head_of(model);
    if (!head_.empty()) return;
    throw UsageError(fmt::format("{}: {} has no last layer for its {} outputs, so [backbone] cannot be used; list names of layers instead",
                                 place_of("model.freeze"), network, model.num_outputs()));
  }

  // Whether model.freeze selects this parameter or layer.
  bool is_frozen(const std::string& name) const {
    const bool is_before_head = !head_.empty() && !state::is_in(name, {head_}) && !head_.starts_with(name + '.');
    return is_before_head || state::is_in(name, options_.freeze);
  }

  // Throws one error with all problems.
  void check() {
    check_names("model.freeze", options_.freeze);
    const auto& groups = options_.groups;
    for (size_t i = 0; i < groups.size(); ++i) check_names(fmt::format("optimizer.groups[{}].parameters", i), groups[i].parameters);
    if (problems_.empty()) check_rest();
    if (!problems_.empty()) throw UsageError(join(problems_, "\n"));
  }

 private:
  void add_known(const std::string& name) {
    if (std::ranges::find(known_, name) == known_.end()) known_.push_back(name);
  }

  void refuse(const std::string& key, const std::string& text) { problems_.push_back(place_of_(key) + ": " + text); }

  void check_names(const std::string& key, const std::vector<std::string>& names) {
    for (size_t i = 0; i < names.size(); ++i) {
      const auto& name = names[i];
      if (std::ranges::find(known_, name) != known_.end() || (key == "model.freeze" && name == kBackbone && !head_.empty())) continue;
      const auto path = fmt::format("{}[{}]", key, i);
      if (layers_.contains(name)) {
        refuse(path, fmt::format("the layer \"{}\" of {} has no parameters; remove this name", name, network_));
      } else {
        refuse(path, fmt::format("{} has neither a layer nor a parameter \"{}\"; {}", network_, name, suggestion(name)));
      }
    }
  }

  std::string suggestion(const std::string& name) const {
    const auto nearest = nearest_name(name, known_);
    if (!nearest.empty()) return fmt::format("did you mean \"{}\"?", nearest);
    std::vector<std::string> layers;
    for (const auto& known : known_) {
      if (known.find('.') == std::string::npos) layers.push_back(known);
    }
    return "its outermost layers and parameters are " + join(layers, ", ");
  }

  // Checks that at least one parameter will be trained, in the whole network and in each item of optimizer.groups.
  void check_rest() {
    const auto& groups = options_.groups;
    std::vector<bool> is_used(groups.size());
    bool is_any_trained = false;
    for (const auto& name : parameters_) {
      if (is_frozen(name)) {
        if (!options_.unfreeze_after) continue;
      } else {
        is_any_trained = true;
      }
      const auto group = std::ranges::find_if(groups, [&](const auto& candidate) { return state::is_in(name, candidate.parameters); });
      if (group != groups.end()) is_used[static_cast<size_t>(group - groups.begin())] = true;
    }
    if (!is_any_trained) {
      refuse("model.freeze",
             fmt::format("every parameter of {} is frozen, so there is nothing to train; leave at least the last layer (\"{}\") trainable",
                         network_, outermost(parameters_.back())));
      return;
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      if (is_used[i]) continue;
      refuse(fmt::format("optimizer.groups[{}].parameters", i),
             "all of these parameters are frozen (model.freeze) or belong to an earlier item; remove this item");
    }
  }

  const optim::ParameterOptions& options_;
  const std::string& network_;
  const PlaceOf& place_of_;
  std::string head_;  // not empty: everything except this layer is frozen
  std::set<std::string> layers_;
  std::vector<std::string> parameters_;
  std::vector<std::string> known_;  // parameters, and layers that have some
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<torch::Tensor> freeze(const optim::ParameterOptions& options, models::Model& model, const std::string& network,
                                  const PlaceOf& place_of) {
  Names names(options, model, network, place_of);
  names.check();
  std::vector<torch::Tensor> parameters;
  for (const auto& item : model.named_parameters()) {
    if (names.is_frozen(item.key()) && item.value().requires_grad()) parameters.push_back(item.value().requires_grad_(false));
  }
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    if (!names.is_frozen(item.key())) continue;
    if (const auto layer = std::dynamic_pointer_cast<nn::BatchNorm2d>(item.value())) {
      layer->freeze_statistics();
    }
    if (nn::is_libtorch_batch_norm(*item.value())) {
      throw UsageError(
          fmt::format("{}: \"{}\" is a batch normalisation of LibTorch, whose running statistics cannot be frozen; make it with "
                      "BuildContext::norm, or name only other layers",
                      place_of("model.freeze"), item.key()));
    }
  }
  return parameters;
}

bool FrozenAtFirst::end_in(int64_t epoch) const {
  if (parameters.empty() || epoch < num_epochs || parameters.front().requires_grad()) return false;
  for (const auto& parameter : parameters) parameter.requires_grad_();
  return true;
}

}  // namespace trainer::engine
