#include "inference/weights_by_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string_view>

#include "base/text.h"
#include "checkpoint/state/names.h"
#include "inference/description.h"
#include "trainer/checkpoint.h"
#include "trainer/error.h"

namespace trainer::inference {
namespace {

// Keys under which training scripts store a state_dict. Of equally good matches, the first one is used.
constexpr std::array<const char*, 5> kUsualKeys = {"model", "model_state_dict", "state_dict", "network", "ema_state_dict"};
// The prefix that torch.compile() adds to the names of a network or any of its parts.
constexpr std::string_view kCompiled = "_orig_mod.";
constexpr std::string_view kCounter = "num_batches_tracked";
// The maximum number of entries that a message lists.
constexpr size_t kMostNamed = 10;

// A dictionary of the file that may be the state_dict.
struct Part {
  std::string path;  // "checkpoint.state_dict"; empty for the whole file
  const state::Dict* dict = nullptr;
};

// Adds `dict` and the dictionaries in it, down to `depth` levels. Of equally good matches, the first one is used.
void add_parts(const state::Dict& dict, const std::string& path, int depth, std::vector<Part>& parts) {
  const auto add_inner = [&](const std::string& key, const state::Tree& value) {
    const auto* inner = depth == 0 ? nullptr : std::get_if<state::Dict>(&value.value());
    if (inner != nullptr) add_parts(*inner, path.empty() ? key : path + '.' + key, depth - 1, parts);
  };
  for (const auto* key : kUsualKeys) {
    if (const auto* value = dict.find(key)) add_inner(key, *value);
  }
  parts.push_back({path, &dict});
  for (const auto& item : dict.items()) {
    const auto key = state::to_string(item.key);
    if (std::ranges::find(kUsualKeys, key) == kUsualKeys.end()) add_inner(key, item.value);
  }
}

using Names = std::set<std::string, std::less<>>;

std::string without_wrappers(std::string name) {
  for (auto found = name.find(kCompiled); found != name.npos; found = name.find(kCompiled)) name.erase(found, kCompiled.size());
  return name;
}

// Returns the prefix of the network's names in the file, such as "module." of DistributedDataParallel: the prefix with which the most
// names match, or the shortest of equally good ones.
std::string find_prefix(const state::Dict& dict, const Names& names) {
  std::map<std::string, size_t> counts;
  for (const auto& item : dict.items()) {
    const auto name = without_wrappers(state::to_string(item.key));
    size_t begin = 0;
    do {
      if (names.contains(std::string_view(name).substr(begin))) ++counts[name.substr(0, begin)];
      begin = name.find('.', begin) + 1;
    } while (begin != 0);
  }
  const auto is_worse = [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second < b.second : a.first.size() > b.first.size();
  };
  const auto best = std::ranges::max_element(counts, is_worse);
  return best == counts.end() ? "" : best->first;
}

// Returns why the value cannot be copied to `destination`, or an empty string if it can.
std::string misfit(const state::Tree& value, const torch::Tensor& destination) {
  const auto* tensor = std::get_if<torch::Tensor>(&value.value());
  if (tensor == nullptr) return "not a tensor";
  const bool fits = tensor->sizes() == destination.sizes() && tensor->is_floating_point() == destination.is_floating_point();
  return fits ? "" : fmt::format("{} in the file, {} in the model", state::describe(*tensor), state::describe(destination));
}

// Returns "missing a, b and 110 more", or an empty string for no names.
std::string list_of(const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  const auto named = std::span(names).first(std::min(names.size(), kMostNamed));
  const auto more = names.size() > kMostNamed ? fmt::format(" and {} more", names.size() - kMostNamed) : "";
  return fmt::format("{} {}{}", what, fmt::join(named, ", "), more);
}

// An entry whose value cannot be copied.
struct Misfit {
  std::string name;
  std::string what;
  torch::Tensor wanted;  // the model's tensor
  const state::Tree* found = nullptr;
};

// Whether the value is from the last layer of a network with a different number of outputs.
bool is_of_other_outputs(const Misfit& misfit, int64_t num_outputs) {
  const auto* found = std::get_if<torch::Tensor>(&misfit.found->value());
  return found != nullptr && found->dim() > 0 && found->dim() == misfit.wanted.dim() && misfit.wanted.size(0) == num_outputs &&
         found->sizes().slice(1) == misfit.wanted.sizes().slice(1);
}

// The comparison of a part of a file with a model.
struct Match {
  std::string origin;  // the file, the part, and the prefixes that were removed from its names
  std::vector<std::pair<torch::Tensor, torch::Tensor>> fitting = {};  // the model's tensor and the file's tensor
  std::vector<std::string> missing = {};
  std::vector<std::string> unexpected = {};
  std::vector<Misfit> misfits = {};

  std::string differences() const {
    std::vector<std::string> not_fitting;
    for (const auto& misfit : misfits) not_fitting.push_back(fmt::format("{} ({})", misfit.name, misfit.what));
    std::vector<std::string> lists = {list_of("missing", missing), list_of("unexpected", unexpected), list_of("not fitting", not_fitting)};
    std::erase(lists, "");
    return join(lists, "; ");
  }
};

std::string describe_origin(const std::string& source, const Part& part, const std::string& prefix) {
  std::vector<std::string> removed;
  const auto is_compiled = [](const state::Item& item) { return state::to_string(item.key).find(kCompiled) != std::string::npos; };
  if (std::ranges::any_of(part.dict->items(), is_compiled)) removed.emplace_back(kCompiled);
  if (!prefix.empty()) removed.push_back(prefix);
  std::vector<std::string> details;
  if (!part.path.empty()) details.push_back(part.path);
  if (!removed.empty()) details.push_back("removed from names: " + join(removed, ", "));
  return details.empty() ? source : fmt::format("{} ({})", source, join(details, ", "));
}

Match match(const Part& part, const std::string& source, const state::Dict& model) {
  Names names;
  for (const auto& item : model.items()) names.insert(state::to_string(item.key));
  const auto prefix = find_prefix(*part.dict, names);
  std::map<std::string, const state::Tree*> values;
  for (const auto& item : part.dict->items()) {
    auto name = without_wrappers(state::to_string(item.key));
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
    values[name] = &item.value;
  }
  Match found{.origin = describe_origin(source, part, prefix)};
  for (const auto& item : model.items()) {
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
      found.misfits.push_back({name, what, destination, value->second});
    }
    values.erase(value);
  }
  for (const auto& value : values) found.unexpected.push_back(value.first);
  return found;
}

// Returns the match of the part that fits best.
Match best_match(const state::Tree& file, const std::string& source, const torch::nn::Module& model) {
  const auto* root = std::get_if<state::Dict>(&file.value());
  if (root == nullptr) throw CheckpointError(source + ": does not contain a state_dict; save model.state_dict()");
  constexpr int kDepth = 2;
  std::vector<Part> parts;
  add_parts(*root, "", kDepth, parts);
  const auto state = state::state_of(model);
  std::optional<Match> best;
  for (const auto& part : parts) {
    auto found = match(part, source, state);
    if (!best || found.fitting.size() > best->fitting.size()) best = std::move(found);
  }
  return std::move(*best);
}

// Returns a text about this for the log.
std::string copy_fitting(const Match& found) {
  const torch::NoGradGuard no_grad;
  for (const auto& [destination, value] : found.fitting) destination.copy_(value);
  return fmt::format("the model starts with {} of {}", counted(found.fitting.size(), "tensor"), found.origin);
}

// Throws if anything differs.
void require_equal(const Match& found, const std::string& remedy) {
  const auto differences = found.differences();
  if (!differences.empty()) throw CheckpointError(fmt::format("{}: does not fit the model: {}; {}", found.origin, differences, remedy));
}

}  // namespace

void load_weights(const state::Tree& file, const std::string& source, torch::nn::Module& model) {
  const auto found = best_match(file, source, model);
  require_equal(found, "choose the model for which the file was made");
  copy_fitting(found);
}

std::string head_of(const models::Model& model) {
  std::string head;
  for (const auto& item : model.named_parameters()) {
    const auto dot = item.key().rfind('.');
    if (dot != std::string::npos && item.value().dim() > 1 && item.value().size(0) == model.num_outputs()) head = item.key().substr(0, dot);
  }
  return head;
}

namespace {

// If the file has different class names, removes the last layer's tensors from `found`, and copies the rows of the classes with equal
// names. Returns a text about this for the log, or an empty string if nothing was done.
std::string take_rows_by_class(const state::Tree& file, const std::vector<std::string>& class_names, const models::Model& model,
                               Match& found) {
  const auto head = head_of(model);
  if (!state::View(file, "").find("class_names") || class_names.empty() || head.empty()) return "";
  std::vector<std::string> of_file;
  try {
    of_file = read_names(file, "", "class_names");
  } catch (const CheckpointError&) {
    return "";  // another program has written something else there
  }
  if (of_file == class_names) return "";
  size_t num_taken = 0;
  const auto take = [&](const torch::Tensor& destination, const torch::Tensor& values) {
    const torch::NoGradGuard no_grad;
    num_taken = 0;
    for (size_t i = 0; i < class_names.size(); ++i) {
      const auto row = std::ranges::find(of_file, class_names[i]) - of_file.begin();
      if (row == std::ssize(of_file) || row >= values.size(0)) continue;
      destination[static_cast<int64_t>(i)].copy_(values[row]);
      ++num_taken;
    }
  };
  for (const auto& item : model.named_parameters()) {
    if (!state::is_in(item.key(), {head})) continue;
    const auto is_this = [&](const auto& pair) { return pair.first.data_ptr() == item.value().data_ptr(); };
    if (const auto fitting = std::ranges::find_if(found.fitting, is_this); fitting != found.fitting.end()) {
      const auto values = fitting->second;
      found.fitting.erase(fitting);
      take(item.value(), values);
    }
    const auto misfit = std::ranges::find(found.misfits, item.key(), &Misfit::name);
    if (misfit != found.misfits.end() && is_of_other_outputs(*misfit, model.num_outputs())) {
      take(item.value(), std::get<torch::Tensor>(misfit->found->value()));
      found.misfits.erase(misfit);
    }
  }
  if (num_taken == 0)
    return fmt::format("; the last layer ({}) starts with random values, because none of its classes is in the file", head);
  return fmt::format(
      "; in the last layer ({}), {} of {} start with the values of the class of the same name in the file, the others with random values",
      head, num_taken, counted(class_names.size(), "class", "classes"));
}

}  // namespace

InitReport init_model(const state::Tree& file, const std::string& source, bool strict, torch::nn::Module& model,
                      const std::vector<std::string>& class_names) {
  auto found = best_match(file, source, model);
  const auto* network = dynamic_cast<const models::Model*>(&model);
  const auto rows = strict || network == nullptr ? "" : take_rows_by_class(file, class_names, *network, found);
  const auto differences = found.differences();
  if (found.fitting.empty() && rows.empty()) {
    throw CheckpointError(
        fmt::format("{}: none of its entries fits the model: {}; choose the model for which the file was made", found.origin, differences));
  }
  const size_t num_fitting = found.fitting.size();
  if (strict) {
    require_equal(found, fmt::format("set model.init_strict: false to load only what fits ({})", counted(num_fitting, "entry", "entries")));
  }
  const size_t num_tensors = num_fitting + found.missing.size() + found.misfits.size();
  InitReport report{.text = copy_fitting(found) + rows, .warning = {}};
  if (!differences.empty()) report.text += "; skipped: " + differences;
  if (2 * num_fitting < num_tensors) {
    report.warning = fmt::format(
        "only {} of the {} tensors of the network fit {}; the others start with random values; if this is not intended, choose the model "
        "for which the file was made",
        num_fitting, num_tensors, source);
  }
  return report;
}

InitReport init_all_but_head(const state::Tree& file, const std::string& source, models::Model& model,
                             const std::vector<std::string>& class_names) {
  auto found = best_match(file, source, model);
  const auto rows = take_rows_by_class(file, class_names, model, found);
  std::vector<std::string> head;
  std::erase_if(found.misfits, [&](const Misfit& misfit) {
    if (!is_of_other_outputs(misfit, model.num_outputs())) return false;
    head.push_back(misfit.name);
    return true;
  });
  const auto prefix = head_of(model) + '.';
  const bool has_no_head = std::erase_if(found.missing, [&](const std::string& name) { return name.starts_with(prefix); }) > 0;
  require_equal(found, "choose the model and the options for which the file was made");
  InitReport report{.text = copy_fitting(found) + rows, .warning = {}};
  if (has_no_head) report.text += fmt::format("; the last layer ({}) starts with random values, because the file has none", head_of(model));
  if (!head.empty()) {
    report.text += fmt::format(
        "; the last layer ({}) starts with random values, because it has {} outputs in this experiment and another number in the file",
        fmt::join(head, ", "), model.num_outputs());
  }
  return report;
}

InitReport init_model(const std::string& file, bool strict, torch::nn::Module& model, const std::vector<std::string>& class_names) {
  return init_model(checkpoint::load(file), file, strict, model, class_names);
}

void load_weights(const state::Tree& tree, const std::string& source, bool averaged, torch::nn::Module& model) {
  if (!averaged) return load_weights(tree, source, model);
  const state::View file(tree, source);
  const auto from = file.find("ema");
  if (!from)
    file.fail("does not contain averaged parameters, which only a run with training.ema saves; omit --ema (in C: TRAINER_AVERAGED)");
  if (from->is_none()) from->fail("does not contain averaged parameters; train with training.ema, or omit --ema (in C: TRAINER_AVERAGED)");
  state::Dict weights;
  for (const auto& key : from->keys()) {
    if (key != state::Key("n_averaged")) weights.add(key, from->at(key).tensor());
  }
  load_weights(weights, source, model);
}

void fit_model(models::Model& model, const data::Dataset& train, const data::Pipeline& pipeline) {
  const auto num_images = std::min(model.num_fitted_images(), train.size());
  if (num_images == 0) return;
  auto shape = pipeline.output_shape();
  shape.insert(shape.begin(), num_images);
  const auto layout = pipeline.layout().channels_last ? torch::MemoryFormat::ChannelsLast : torch::MemoryFormat::Contiguous;
  const auto images = torch::empty(shape, torch::TensorOptions(pipeline.layout().dtype).memory_format(layout));
  data::Scratch scratch;
  data::PictureMemory memory;
  int64_t num_read = 0;
  std::string refusal;
  for (int64_t i = 0; num_read < num_images && i < std::min(2 * num_images, train.size()); ++i) {
    try {
      pipeline.write(train.read(i, scratch), {/*seed=*/0, /*number=*/0}, {i}, memory, images[num_read].data_ptr());
      ++num_read;
    } catch (const std::runtime_error& error) {
      // Training reports the image or skips it.
      if (refusal.empty()) refusal = fmt::format("{}: {}", train.describe(i), error.what());
    }
  }
  if (num_read == 0) throw DataError(refusal);
  model.fit(images.narrow(0, 0, num_read));
}

}  // namespace trainer::inference
