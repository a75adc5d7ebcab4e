#include "engine/step_record.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace trainer::engine {
namespace {

std::filesystem::path json_file(const std::filesystem::path& folder) { return folder / "step.json"; }
std::filesystem::path model_file(const std::filesystem::path& folder) { return folder / "model.pt"; }

// Parameters, then buffers.
torch::OrderedDict<std::string, torch::Tensor> state_of(const torch::nn::Module& model) {
  auto state = model.named_parameters();
  state.update(model.named_buffers());
  return state;
}

// A file that torch.load(weights_only=True) opens: torch::pickle_save marks types in a way that it refuses.
std::string pickle(const c10::IValue& value) {
  std::string program;
  torch::jit::Pickler pickler([&](const char* data, size_t size) { program.append(data, size); }, /*tensor_table=*/nullptr,
                              /*type_renamer=*/nullptr, /*memoized_class_types=*/nullptr, /*get_tensor_id=*/nullptr,
                              /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  std::string bytes;
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  writer.writeRecord("data.pkl", program.data(), program.size());
  for (size_t i = 0; i < pickler.tensorData().size(); ++i) {
    const auto tensor = torch::jit::getWriteableTensorData(pickler.tensorData()[i]);
    writer.writeRecord(fmt::format("data/{}", i), tensor.data(), tensor.sizeInBytes());
  }
  writer.writeEndOfFile();
  return bytes;
}

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& reason) {
  throw DataError(fmt::format("{}: {}; give the folder that the run's message names", file.string(), reason));
}

}  // namespace

std::filesystem::path step_config_file(const std::filesystem::path& folder) { return folder / "config.yaml"; }

void write_step(const std::filesystem::path& folder, const StepRecord& record, const torch::nn::Module& model,
                const std::string& config_text) {
  std::filesystem::create_directories(folder);
  write_file_atomically(step_config_file(folder), config_text);
  c10::impl::GenericDict tensors(c10::AnyType::get(), c10::AnyType::get());
  for (const auto& tensor : state_of(model)) tensors.insert(tensor.key(), tensor.value().detach().cpu());
  write_file_atomically(model_file(folder), pickle(tensors));
  nlohmann::ordered_json json = {{"step", record.step},
                                 {"epoch", record.epoch},
                                 {"lr", record.lr},
                                 {"loss_scale", nullptr},
                                 {"rank", record.rank},
                                 {"world_size", record.world_size},
                                 {"is_joined", record.is_joined},
                                 {"num_group_samples", record.num_group_samples},
                                 {"first_non_finite", record.first_non_finite},
                                 {"repeats", record.repeats},
                                 {"batches", record.batches}};
  if (record.loss_scale) json["loss_scale"] = *record.loss_scale;
  write_file_atomically(json_file(folder), json.dump() + '\n');
}

StepRecord read_step(const std::filesystem::path& folder) {
  const auto file = json_file(folder);
  if (!std::filesystem::exists(file)) refuse(file, "there is no such file");
  try {
    const auto json = nlohmann::json::parse(read_file(file));
    StepRecord record{.step = json.at("step"),
                      .epoch = json.at("epoch"),
                      .lr = json.at("lr"),
                      .rank = json.at("rank"),
                      .world_size = json.at("world_size"),
                      .is_joined = json.at("is_joined"),
                      .num_group_samples = json.at("num_group_samples"),
                      .batches = json.at("batches"),
                      .first_non_finite = json.at("first_non_finite"),
                      .repeats = json.at("repeats")};
    if (!json.at("loss_scale").is_null()) record.loss_scale = json.at("loss_scale").get<double>();
    return record;
  } catch (const nlohmann::json::exception& error) {
    refuse(file, fmt::format("this is no record of a step ({})", error.what()));
  }
}

void read_model(const std::filesystem::path& folder, torch::nn::Module& model) {
  const auto file = model_file(folder);
  if (!std::filesystem::exists(file)) refuse(file, "there is no such file");
  const torch::NoGradGuard no_grad;
  try {
    const auto bytes = read_file(file);
    const auto tensors = torch::jit::pickle_load({bytes.begin(), bytes.end()}).toGenericDict();
    for (auto& tensor : state_of(model)) tensor.value().copy_(tensors.at(tensor.key()).toTensor());
  } catch (const std::exception& error) {
    refuse(file, fmt::format("this is no state of the model ({})", std::string(error.what()).substr(0, 200)));
  }
}

}  // namespace trainer::engine
