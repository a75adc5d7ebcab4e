#include "checkpoint/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/refusal.h"
#include "checkpoint/shape.h"

namespace trainer::checkpoint {
namespace {

using Tensor = SafetensorsHeader::Tensor;

// Receives the JSON's tokens from the parser and allows only the format's nesting: a tree of the JSON would need many times its size.
class Handler : public nlohmann::json_sax<nlohmann::json> {
 public:
  Handler(const std::string& source, Budget& budget) : source_(source), budget_(budget) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { unexpected("a number that is not an integer"); }
  bool binary(binary_t&) override { unexpected("bytes"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) unexpected("a number");
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max())) unexpected("a number that is too large");
    if (place_ == Place::kShape) {
      if (tensor().shape.size() == kMaxDimensions) unexpected("a shape of more dimensions than tensors have");
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
    if (place_ != Place::kTensor || key_ != "dtype") unexpected("a string");
    tensor().dtype = find_dtype_by_safetensors(value);
    if (tensor().dtype == nullptr) {
      refuse(source_, fmt::format("tensor {} is of dtype {}, which is not known here", in_quotes(tensor().name), in_quotes(value)),
             "save it as a dtype that PyTorch computes in");
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

  // Memory of a tensor and its header entry without the name, and of a pair of strings in the metadata.
  static constexpr size_t kTensorMemory = 1024;
  static constexpr size_t kMetadataMemory = 256;
  // LibTorch's kernels support no more.
  static constexpr size_t kMaxDimensions = 64;

  Tensor& tensor() { return header_.tensors.back(); }

  [[noreturn]] void unexpected(const std::string& what) const {
    refuse(source_, fmt::format("its header holds {} where the format does not allow it, at {}", what, in_quotes(key_)),
           "save it again with the safetensors package");
  }

  const std::string& source_;
  Budget& budget_;
  SafetensorsHeader header_;
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
    refuse_damaged(source,
                   fmt::format("tensor {} of {} and shape [{}] would be bytes {} to {}, which is another size", in_quotes(tensor.name),
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
                     fmt::format("tensor {} begins at byte {} of the values, which {} the one before it, which ends at byte {}",
                                 in_quotes(tensor->name), tensor->begin, tensor->begin < end ? "overlaps" : "leaves a gap after", end));
    }
    end = tensor->end;
  }
  if (end != num_bytes) refuse_damaged(source, fmt::format("its tensors take {} bytes, but {} follow the header", end, num_bytes));
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t num_bytes, const std::string& source, Budget& budget) {
  // The parser's buffers while it reads one long string.
  budget.take(4, json.size());
  Handler handler(source, budget);
  nlohmann::json::sax_parse(json.begin(), json.end(), &handler);
  auto header = handler.take();
  check_names(header.tensors, source);
  for (const auto& tensor : header.tensors) check_size(tensor, source);
  check_places(header.tensors, num_bytes, source);
  return header;
}

}  // namespace trainer::checkpoint
