#include "engine/init_from.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "base/error.h"
#include "base/plural.h"
#include "checkpoint/read_file.h"
#include "state/module.h"

namespace trainer::engine {
namespace {

constexpr std::string_view kPrefix = "module.";
constexpr std::string_view kCounter = "num_batches_tracked";

const state::Dict& state_dict_of(const state::Tree& file, const std::string& source) {
  const auto* root = std::get_if<state::Dict>(&file.value());
  if (root == nullptr) throw CheckpointError(source + ": does not contain a state_dict; save model.state_dict()");
  for (const auto* name : {"model", "state_dict"}) {
    const auto* inner = root->find(name);
    const auto* dict = inner == nullptr ? nullptr : std::get_if<state::Dict>(&inner->value());
    if (dict != nullptr) return *dict;
  }
  return *root;
}

std::map<std::string, const state::Tree*> by_name(const state::Dict& state_dict) {
  std::map<std::string, const state::Tree*> values;
  for (const auto& item : state_dict.items()) {
    auto name = state::to_string(item.key);
    if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
    values[name] = &item.value;
  }
  return values;
}

// Why the value cannot be copied to `destination`; empty if it can.
std::string misfit(const state::Tree& value, const torch::Tensor& destination) {
  const auto* tensor = std::get_if<torch::Tensor>(&value.value());
  if (tensor == nullptr) return "not a tensor";
  const bool fits = tensor->sizes() == destination.sizes() && tensor->is_floating_point() == destination.is_floating_point();
  return fits ? "" : fmt::format("{}, not {}", state::describe(*tensor), state::describe(destination));
}

// The comparison of a file with a model.
struct Match {
  std::vector<std::pair<torch::Tensor, torch::Tensor>> fitting;  // the model's and the file's
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::vector<std::string> misfits;

  std::string differences() const {
    std::vector<std::string> parts;
    const auto add = [&](const char* what, const std::vector<std::string>& names) {
      if (!names.empty()) parts.push_back(fmt::format("{} {}", what, fmt::join(names, ", ")));
    };
    add("missing", missing);
    add("unexpected", unexpected);
    add("not fitting", misfits);
    return fmt::format("{}", fmt::join(parts, "; "));
  }
};

Match match(const state::Tree& file, const std::string& source, const torch::nn::Module& model) {
  auto values = by_name(state_dict_of(file, source));
  const auto state = state::state_of(model);
  Match found;
  for (const auto& item : state.items()) {
    const auto name = state::to_string(item.key);
    const auto& destination = std::get<torch::Tensor>(item.value.value());
    const auto value = values.find(name);
    if (value == values.end()) {
      if (!name.ends_with(kCounter)) found.missing.push_back(name);
      continue;
    }
    const auto what = misfit(*value->second, destination);
    if (what.empty()) {
      found.fitting.emplace_back(destination, std::get<torch::Tensor>(value->second->value()));
    } else {
      found.misfits.push_back(fmt::format("{} ({})", name, what));
    }
    values.erase(value);
  }
  for (const auto& value : values) found.unexpected.push_back(value.first);
  return found;
}

void copy_fitting(const Match& found) {
  const torch::NoGradGuard no_grad;
  for (const auto& [destination, value] : found.fitting) destination.copy_(value);
}

}  // namespace

void load_weights(const state::Tree& file, const std::string& source, torch::nn::Module& model) {
  const auto found = match(file, source, model);
  const auto differences = found.differences();
  if (!differences.empty()) throw CheckpointError(fmt::format("{}: does not fit the model: {}", source, differences));
  copy_fitting(found);
}

InitReport init_model(const state::Tree& file, const std::string& source, bool strict, torch::nn::Module& model) {
  const auto found = match(file, source, model);
  const auto differences = found.differences();
  if (strict && !differences.empty()) {
    throw CheckpointError(
        fmt::format("{}: does not fit the model: {}; set model.init_strict: false to load the entries that fit", source, differences));
  }
  if (found.fitting.empty()) throw CheckpointError(fmt::format("{}: none of its entries fits the model: {}", source, differences));
  copy_fitting(found);
  const size_t num_fitting = found.fitting.size();
  const size_t num_tensors = num_fitting + found.missing.size() + found.misfits.size();
  InitReport report{.text = fmt::format("the model starts with {} of {}", counted(num_fitting, "tensor"), source), .warning = {}};
  if (!differences.empty()) report.text += "; skipped: " + differences;
  if (2 * num_fitting < num_tensors) {
    report.warning =
        fmt::format("only {} of the {} tensors of the network are in {}; the others start at random", num_fitting, num_tensors, source);
  }
  return report;
}

InitReport init_model(const config::ModelSection& section, torch::nn::Module& model) {
  return init_model(checkpoint::read_any(section.init_from), section.init_from, section.init_strict, model);
}

void fit_model(models::Model& model, const Data& data) {
  const auto& dataset = data.train.dataset();
  const auto num_images = std::min(model.num_fitted_images(), dataset.size());
  if (num_images == 0) return;
  const auto& pipeline = *data.validation.pipeline;
  auto shape = pipeline.output_shape();
  shape.insert(shape.begin(), num_images);
  const auto layout = pipeline.layout().channels_last ? torch::MemoryFormat::ChannelsLast : torch::MemoryFormat::Contiguous;
  const auto images = torch::empty(shape, torch::TensorOptions(pipeline.layout().dtype).memory_format(layout));
  input::Scratch scratch;
  input::PictureMemory memory;
  for (int64_t i = 0; i < num_images; ++i) {
    pipeline.write(dataset.read(i, scratch), {/*seed=*/0, /*number=*/0}, {i}, memory, images[i].data_ptr());
  }
  model.fit(images);
}

}  // namespace trainer::engine
