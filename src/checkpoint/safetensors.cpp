#include "checkpoint/safetensors.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file_access.h"
#include "base/little_endian.h"
#include "checkpoint/dtypes.h"
#include "checkpoint/refusal.h"
#include "checkpoint/safetensors_header.h"
#include "trainer/error.h"

namespace trainer::checkpoint {
namespace {

using little_endian::append;
using little_endian::load;

constexpr size_t kLengthSize = sizeof(uint64_t);

struct Named {
  std::string name;
  torch::Tensor tensor;
  const Dtype* dtype;
};

// The tensors in the order of their values in the file.
std::vector<Named> sorted(const state::Dict& tensors) {
  std::vector<Named> result;
  for (const auto& [key, tree] : tensors.items()) {
    const auto* name = std::get_if<std::string>(&key);
    const auto* tensor = std::get_if<torch::Tensor>(&tree.value());
    TORCH_CHECK(name != nullptr && tensor != nullptr && tensor->is_cpu(), "a safetensors file holds named tensors of the CPU");
    const auto* dtype = find_dtype(tensor->scalar_type());
    if (dtype == nullptr || dtype->safetensors == nullptr) {
      throw CheckpointError(fmt::format("{}: safetensors files cannot hold tensors of {}; write PyTorch's format instead", *name,
                                        toString(tensor->scalar_type())));
    }
    result.push_back({*name, *tensor, dtype});
  }
  std::ranges::sort(result, {}, [](const Named& named) { return std::pair(named.dtype, std::string_view(named.name)); });
  return result;
}

// The memory from the tensor's first element to its last.
std::pair<const char*, const char*> range_of(const torch::Tensor& tensor) {
  const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return {begin, begin + (last + 1) * static_cast<int64_t>(tensor.element_size())};
}

void check_not_shared(const std::vector<Named>& tensors) {
  std::vector<const Named*> order;
  for (const auto& named : tensors) {
    if (named.tensor.numel() > 0) order.push_back(&named);
  }
  std::ranges::sort(order, {}, [](const Named* named) { return range_of(named->tensor); });
  const auto overlap = std::ranges::adjacent_find(
      order, [](const Named* left, const Named* right) { return range_of(right->tensor).first < range_of(left->tensor).second; });
  if (overlap == order.end()) return;
  throw CheckpointError(
      fmt::format("{} and {} share memory, which a safetensors file cannot represent; omit one of them, or write PyTorch's format instead",
                  overlap[0]->name, overlap[1]->name));
}

std::string header_of(const std::vector<Named>& tensors, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  size_t position = 0;
  for (const auto& [name, tensor, dtype] : tensors) {
    const auto end = position + tensor.nbytes();
    header[name] = {{"dtype", dtype->safetensors}, {"shape", tensor.sizes().vec()}, {"data_offsets", {position, end}}};
    position = end;
  }
  auto text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

void write_safetensors(const Safetensors& content, Output& output) {
  const auto tensors = sorted(content.tensors);
  check_not_shared(tensors);
  const auto header = header_of(tensors, content.metadata);
  TORCH_CHECK(header.size() <= kMaxSafetensorsHeader, "the names of the tensors are too long for a safetensors file");
  std::string start;
  append(start, uint64_t{header.size()});
  start += header;
  output.write(start);
  for (const auto& named : tensors) {
    const auto values = named.tensor.contiguous();
    output.write({static_cast<const char*>(values.const_data_ptr()), values.nbytes()});
  }
}

Safetensors read_safetensors(const std::filesystem::path& path) {
  const FileAccess access("reading", path);
  const auto file = map_file(path);
  return read_safetensors(file.bytes(), path.string());
}

Safetensors read_safetensors(std::span<const uint8_t> bytes, const std::string& source) {
  if (bytes.empty()) refuse_empty(source);
  if (bytes.size() < kLengthSize) refuse_damaged(source, "is too short for the length of a header");
  const auto length = load<uint64_t>(bytes.data());
  const auto rest = bytes.subspan(kLengthSize);
  if (length > kMaxSafetensorsHeader) {
    refuse_damaged(source, fmt::format("would have a header of {} bytes, more than safetensors may have", length));
  }
  if (length > rest.size())
    refuse_damaged(source, fmt::format("would have a header of {} bytes, but ends {} bytes into it", length, rest.size()));
  const std::string_view json(reinterpret_cast<const char*>(rest.data()), length);
  const auto values = rest.subspan(length);
  Budget budget(bytes.size(), source);
  auto header = parse_safetensors_header(json, values.size(), source, budget);
  budget.take(values.size());
  Safetensors content;
  for (auto& [name, dtype, shape, begin, end] : header.tensors) {
    auto tensor = torch::empty(shape, torch::dtype(dtype->type));
    if (end > begin) std::memcpy(tensor.mutable_data_ptr(), &values[begin], end - begin);
    content.tensors.add(std::move(name), std::move(tensor));
  }
  content.metadata = std::move(header.metadata);
  return content;
}

}  // namespace trainer::checkpoint
