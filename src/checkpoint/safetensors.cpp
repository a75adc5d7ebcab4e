#include "checkpoint/safetensors.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/bytes.h"
#include "base/text.h"
#include "checkpoint/dtypes.h"
#include "checkpoint/refusal.h"
#include "trainer/error.h"

namespace trainer::checkpoint {
namespace {

using little_endian::append;
using little_endian::load;

using Json = nlohmann::json;

constexpr size_t kLengthSize = sizeof(uint64_t);
constexpr const char* kNoObject = "its header is not a JSON object";

struct Named {
  std::string name;
  torch::Tensor tensor;
  const Dtype* dtype;
};

// Returns the tensors in the order of their values in the file.
std::vector<Named> sorted(const state::Dict& tensors) {
  std::vector<Named> result;
  for (const auto& [key, tree] : tensors.items()) {
    const auto* name = std::get_if<std::string>(&key);
    const auto* tensor = std::get_if<torch::Tensor>(&tree.value());
    TORCH_CHECK(name != nullptr && tensor != nullptr && tensor->is_cpu(), "a safetensors file can contain only named tensors on the CPU");
    const auto* dtype = find_dtype(tensor->scalar_type());
    if (dtype == nullptr || dtype->safetensors == nullptr) {
      throw CheckpointError(fmt::format("{}: safetensors files cannot contain tensors of {}; use PyTorch's format (--format state_dict)",
                                        *name, toString(tensor->scalar_type())));
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
      fmt::format("{} and {} share memory, which a safetensors file cannot represent; use PyTorch's format (--format state_dict)",
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

struct Tensor {
  std::string name;
  const Dtype* dtype = nullptr;
  std::vector<int64_t> shape;
  // Byte offsets from the end of the header.
  uint64_t begin = 0;
  uint64_t end = 0;
};

[[noreturn]] void refuse_entry(const std::string& source, std::string_view key) {
  refuse(source, fmt::format("its header describes {} in a way that the format does not allow", in_quotes(key)),
         "save it again with Python's safetensors package");
}

Tensor tensor_of(const std::string& name, const Json& entry, const std::string& source) {
  // The maximum that LibTorch's kernels support.
  constexpr size_t kMaxDimensions = 64;
  const auto is_list = [&](const char* key) {
    return entry[key].is_array() && std::ranges::all_of(entry[key], [](const Json& value) {
             return value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
           });
  };
  const bool is_complete = entry.size() == 3 && entry.contains("dtype") && entry.contains("shape") && entry.contains("data_offsets") &&
                           entry["dtype"].is_string() && is_list("shape") && is_list("data_offsets");
  if (!is_complete || entry["shape"].size() > kMaxDimensions || entry["data_offsets"].size() != 2) refuse_entry(source, name);
  const auto& dtype = entry["dtype"].get_ref<const std::string&>();
  Tensor tensor{name, find_dtype_by_safetensors(dtype), entry["shape"], entry["data_offsets"][0], entry["data_offsets"][1]};
  if (tensor.dtype == nullptr) {
    refuse(source, fmt::format("tensor {} has the dtype {}, which is not supported", in_quotes(name), in_quotes(dtype)),
           "save it with a dtype that PyTorch supports");
  }
  const auto size = num_bytes_of(tensor.shape, c10::elementSize(tensor.dtype->type));
  if (!size || tensor.begin > tensor.end || tensor.end - tensor.begin != *size) {
    refuse_damaged(source, fmt::format("tensor {} has dtype {} and shape [{}], but its bytes {} to {} have a different size",
                                       in_quotes(name), dtype, fmt::join(tensor.shape, ", "), tensor.begin, tensor.end));
  }
  return tensor;
}

// `tensors` are in the order of their values.
void check_places(const std::vector<Tensor>& tensors, uint64_t num_bytes, const std::string& source) {
  uint64_t end = 0;
  for (const auto& tensor : tensors) {
    if (tensor.begin != end) {
      refuse_damaged(
          source, fmt::format("tensor {} begins at byte {} of the values instead of byte {}: {}", in_quotes(tensor.name), tensor.begin, end,
                              tensor.begin < end ? "it overlaps the previous tensor" : "there is a gap before it"));
    }
    end = tensor.end;
  }
  if (end != num_bytes) refuse_damaged(source, fmt::format("its tensors need {} bytes, but {} bytes follow the header", end, num_bytes));
}

// Returns the tensors in the order of their values, and sets `metadata`.
std::vector<Tensor> read_header(std::string_view text, std::map<std::string, std::string>& metadata, const std::string& source,
                                Budget& budget) {
  using Event = Json::parse_event_t;
  // Approximate memory of a key, which is copied twice, of a value, and of a tensor without its values.
  constexpr size_t kKeyMemory = 192;
  constexpr size_t kValueMemory = 64;
  constexpr size_t kTensorMemory = 768;
  constexpr const char* kMetadata = "__metadata__";
  std::vector<Tensor> tensors;
  std::string name;                           // of the current entry
  std::array<std::set<std::string>, 2> keys;  // of the header and of the current entry
  const auto add_entry = [&](const Json& entry) {
    if (name != kMetadata) {
      budget.take(kTensorMemory);
      tensors.push_back(tensor_of(name, entry, source));
    } else if (std::ranges::all_of(entry, [](const Json& value) { return value.is_string(); })) {
      metadata = entry;
    } else {
      refuse_entry(source, name);
    }
  };
  const auto receive = [&](int depth, Event event, const Json& value) {
    const auto level = static_cast<size_t>(depth);
    if (event == Event::key) {
      const auto& key = value.get_ref<const std::string&>();
      budget.take(kKeyMemory + 3 * key.size());
      if (!keys[level - 1].insert(key).second) refuse_damaged(source, fmt::format("its header contains {} twice", in_quotes(key)));
      if (level == 1) name = key;
      return true;
    }
    budget.take(kValueMemory + (value.is_string() ? 2 * value.get_ref<const std::string&>().size() : 0));
    if (event == Event::object_start && level < keys.size()) {
      keys[level].clear();
    } else if (event == Event::object_end && level == 1) {
      add_entry(value);
      // Not kept, because the parser would search all kept entries at the end of each one.
      return false;
    } else if (level == 0 && event != Event::object_end) {
      refuse_damaged(source, kNoObject);
    } else if (level == 1 || (level > 1 && event == Event::object_start) || (level > 2 && event != Event::value)) {
      refuse_entry(source, name);
    }
    return true;
  };
  // If the JSON is one long string, the buffers of the parser need up to four times its size.
  budget.take(4, text.size());
  try {
    [[maybe_unused]] const auto nothing = Json::parse(text.begin(), text.end(), receive);
  } catch (const Json::exception&) {
    refuse_damaged(source, kNoObject);
  }
  std::ranges::sort(tensors, {}, [](const Tensor& tensor) { return std::tuple(tensor.begin, tensor.end, std::string_view(tensor.name)); });
  return tensors;
}

}  // namespace

void write_safetensors(const Safetensors& content, Output& output) {
  const auto tensors = sorted(content.tensors);
  check_not_shared(tensors);
  const auto header = header_of(tensors, content.metadata);
  TORCH_CHECK(header.size() <= kMaxSafetensorsHeader, "the header of a safetensors file would have ", header.size(), " bytes, but at most ",
              kMaxSafetensorsHeader, " are allowed; use PyTorch's format (--format state_dict)");
  std::string start;
  append(start, uint64_t{header.size()});
  start += header;
  output.write(start);
  for (const auto& named : tensors) {
    const auto values = named.tensor.contiguous();
    output.write({static_cast<const char*>(values.const_data_ptr()), values.nbytes()});
  }
}

Safetensors read_safetensors(std::span<const uint8_t> bytes, const std::string& source) {
  if (bytes.size() < kLengthSize) refuse_damaged(source, "is too short to contain the length of a header");
  const auto length = load<uint64_t>(bytes.data());
  const auto rest = bytes.subspan(kLengthSize);
  if (length > kMaxSafetensorsHeader) {
    refuse_damaged(source, fmt::format("states a header of {} bytes, which is more than safetensors allows", length));
  }
  if (length > rest.size())
    refuse_damaged(source, fmt::format("states a header of {} bytes, but only {} bytes follow", length, rest.size()));
  const std::string_view json(reinterpret_cast<const char*>(rest.data()), length);
  const auto values = rest.subspan(length);
  Budget budget(bytes.size(), source);
  Safetensors content;
  auto tensors = read_header(json, content.metadata, source, budget);
  check_places(tensors, values.size(), source);
  budget.take(values.size());
  for (auto& [name, dtype, shape, begin, end] : tensors) {
    auto tensor = torch::empty(shape, torch::dtype(dtype->type));
    if (end > begin) std::memcpy(tensor.mutable_data_ptr(), &values[begin], end - begin);
    content.tensors.add(std::move(name), std::move(tensor));
  }
  return content;
}

}  // namespace trainer::checkpoint
