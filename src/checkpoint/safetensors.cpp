#include "checkpoint/safetensors.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
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

constexpr size_t kLengthSize = sizeof(uint64_t);

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

namespace {

struct Tensor {
  std::string name;
  const Dtype* dtype = nullptr;
  std::vector<int64_t> shape;
  // Byte offsets from the end of the header.
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct Header {
  std::vector<Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Receives the JSON's tokens from the parser and allows only the nesting of the format. No tree of the JSON is built, because it would need
// many times the size of the text.
class Handler : public nlohmann::json_sax<nlohmann::json> {
 public:
  Handler(const std::string& source, Budget& budget) : source_(source), budget_(budget) {}

  Header take() { return std::move(header_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { unexpected("a number that is not an integer"); }
  bool binary(binary_t&) override { unexpected("bytes"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) unexpected("a number");
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max())) unexpected("a number that is too large");
    if (place_ == Place::kShape) {
      if (tensor().shape.size() == kMaxDimensions) unexpected("a shape with more dimensions than tensors can have");
      tensor().shape.push_back(static_cast<int64_t>(value));
    } else if (num_offsets_ == 2) {
      unexpected("a third offset");
    } else {
      (num_offsets_++ == 0 ? tensor().begin : tensor().end) = value;
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      budget_.take(kMetadataMemory + key_.size() + value.size());
      if (!header_.metadata.emplace(key_, value).second) unexpected("the same key twice");
      return true;
    }
    if (place_ != Place::kTensor || key_ != "dtype" || tensor().dtype != nullptr) unexpected("a string");
    tensor().dtype = find_dtype_by_safetensors(value);
    if (tensor().dtype == nullptr) {
      refuse(source_, fmt::format("tensor {} has the dtype {}, which is not supported", in_quotes(tensor().name), in_quotes(value)),
             "save it with a dtype that PyTorch supports");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kOutside) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop && key_ == "__metadata__") {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kTop) {
      budget_.take(kTensorMemory + key_.size());
      header_.tensors.emplace_back().name = key_;
      place_ = Place::kTensor;
      has_shape_ = false;
      num_offsets_ = 0;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(string_t& key) override {
    key_ = key;
    if (place_ == Place::kTensor && key != "dtype" && key != "shape" && key != "data_offsets") unexpected("an unknown key");
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor && (tensor().dtype == nullptr || !has_shape_ || num_offsets_ != 2)) {
      key_ = tensor().name;
      unexpected("a tensor without dtype, shape or two data_offsets");
    }
    place_ = place_ == Place::kTop ? Place::kOutside : Place::kTop;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kTensor && key_ == "shape" && !has_shape_) {
      has_shape_ = true;
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && key_ == "data_offsets" && num_offsets_ == 0) {
      place_ = Place::kOffsets;
    } else {
      unexpected("a list");
    }
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    refuse_damaged(source_, fmt::format("its header is not valid JSON (error at byte {})", position));
  }

 private:
  enum class Place { kOutside, kTop, kMetadata, kTensor, kShape, kOffsets };

  // Approximate memory of a tensor and its header entry without the name, and of a pair of strings in the metadata.
  static constexpr size_t kTensorMemory = 1024;
  static constexpr size_t kMetadataMemory = 256;
  // The maximum that LibTorch's kernels support.
  static constexpr size_t kMaxDimensions = 64;

  Tensor& tensor() { return header_.tensors.back(); }

  [[noreturn]] void unexpected(const std::string& what) const {
    refuse(source_, fmt::format("its header contains {} at {}, which the format does not allow", what, in_quotes(key_)),
           "save it again with Python's safetensors package");
  }

  const std::string& source_;
  Budget& budget_;
  Header header_;
  Place place_ = Place::kOutside;
  std::string key_;
  bool has_shape_ = false;
  int num_offsets_ = 0;
};

void check_names(const std::vector<Tensor>& tensors, const std::string& source) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const auto& tensor : tensors) names.push_back(tensor.name);
  std::ranges::sort(names);
  const auto duplicate = std::ranges::adjacent_find(names);
  if (duplicate != names.end()) refuse_damaged(source, fmt::format("tensor {} occurs twice", in_quotes(*duplicate)));
}

void check_size(const Tensor& tensor, const std::string& source) {
  const auto size = num_bytes_of(tensor.shape, c10::elementSize(tensor.dtype->type));
  if (!size || tensor.begin > tensor.end || tensor.end - tensor.begin != *size) {
    refuse_damaged(
        source, fmt::format("tensor {} has dtype {} and shape [{}], but its bytes {} to {} have a different size", in_quotes(tensor.name),
                            tensor.dtype->safetensors, fmt::join(tensor.shape, ", "), tensor.begin, tensor.end));
  }
}

void check_places(const std::vector<Tensor>& tensors, uint64_t num_bytes, const std::string& source) {
  std::vector<const Tensor*> order;
  order.reserve(tensors.size());
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, [](const Tensor* tensor) { return std::pair(tensor->begin, tensor->end); });
  uint64_t end = 0;
  for (const auto* tensor : order) {
    if (tensor->begin != end) {
      refuse_damaged(source,
                     fmt::format("tensor {} begins at byte {} of the values instead of byte {}: {}", in_quotes(tensor->name), tensor->begin,
                                 end, tensor->begin < end ? "it overlaps the previous tensor" : "there is a gap before it"));
    }
    end = tensor->end;
  }
  if (end != num_bytes) refuse_damaged(source, fmt::format("its tensors need {} bytes, but {} bytes follow the header", end, num_bytes));
}

// `json` is the header, `num_bytes` the number of bytes after it.
Header parse_header(std::string_view json, uint64_t num_bytes, const std::string& source, Budget& budget) {
  // If the JSON is one long string, the buffers of the parser need up to four times its size.
  budget.take(4, json.size());
  Handler handler(source, budget);
  nlohmann::json::sax_parse(json.begin(), json.end(), &handler);
  auto header = handler.take();
  check_names(header.tensors, source);
  for (const auto& tensor : header.tensors) check_size(tensor, source);
  check_places(header.tensors, num_bytes, source);
  return header;
}

}  // namespace

Safetensors read_safetensors(std::span<const uint8_t> bytes, const std::string& source) {
  if (bytes.empty()) refuse_empty(source);
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
  auto header = parse_header(json, values.size(), source, budget);
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
