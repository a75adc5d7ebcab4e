#include "checkpoint/pickle_calls.h"

#include <fmt/format.h>

#include <span>
#include <string>

#include "checkpoint/dtypes.h"
#include "checkpoint/refusal.h"

namespace trainer::checkpoint {
namespace {

using Arguments = std::span<const ObjectId>;

class Caller {
 public:
  Caller(Objects& objects, Budget& budget) : objects_(objects), budget_(budget) {}

  ObjectId call(Global function, Arguments arguments) {
    switch (function.kind) {
      case Global::Kind::kOrderedDict:
        return ordered_dict(arguments);
      case Global::Kind::kCounter:
        expect_count(arguments, 1, 1);
        get<Dict>(arguments[0]);
        return arguments[0];
      case Global::Kind::kSize:
        expect_count(arguments, 1, 1);
        get<Tuple>(arguments[0]);
        return arguments[0];
      case Global::Kind::kDevice:
        return device(arguments);
      case Global::Kind::kRebuildTensor:
        expect_count(arguments, 4, 4);
        return make_tensor(arguments, nullptr);
      case Global::Kind::kRebuildTensorV2:
        return rebuild_tensor_v2(arguments, nullptr);
      case Global::Kind::kRebuildTensorV3:
        return rebuild_tensor_v3(arguments);
      case Global::Kind::kRebuildParameter:
        expect_count(arguments, 3, 3);
        get<torch::Tensor>(arguments[0]);
        expect_empty(arguments[2], "hooks");
        return arguments[0];
      case Global::Kind::kParameter:
        expect_count(arguments, 1, 2);
        get<torch::Tensor>(arguments[0]);
        if (arguments.size() == 2) get<bool>(arguments[1]);
        return arguments[0];
      case Global::Kind::kStorage:
      case Global::Kind::kDtype:
        break;
    }
    throw PickleError("calls a type that is not a function");
  }

  void set_state(ObjectId object, ObjectId state) {
    const auto& content = objects_[object];
    if (std::holds_alternative<torch::Tensor>(content)) return set_parameter_state(state);
    const auto* dict = std::get_if<Dict>(&content);
    if (dict == nullptr) throw PickleError(fmt::format("sets attributes of {}", describe(content)));
    if (!dict->is_ordered || !std::holds_alternative<Dict>(objects_[state])) throw PickleError("sets attributes of a plain dictionary");
  }

 private:
  // `state`: (requires_grad, volatile, hooks), which parameters have in files of PyTorch before 0.4.
  void set_parameter_state(ObjectId state) const {
    const auto* tuple = std::get_if<Tuple>(&objects_[state]);
    if (tuple == nullptr || tuple->elements.size() != 3) throw PickleError("sets attributes of a tensor");
    expect_empty(tuple->elements[2], "hooks");
  }

  static void expect_count(Arguments arguments, size_t least, size_t most) {
    if (arguments.size() < least || arguments.size() > most) {
      throw PickleError(fmt::format("calls a function with {} arguments, which it does not accept", arguments.size()));
    }
  }

  template <typename T>
  const T& get(ObjectId id) const {
    const auto* value = std::get_if<T>(&objects_[id]);
    if (value == nullptr)
      throw PickleError(fmt::format("calls a function with {} where it takes {}", describe(objects_[id]), describe(T{})));
    return *value;
  }

  // Refuses attributes that plain tensors do not have.
  void expect_empty(ObjectId id, const char* what) const {
    const auto* dict = std::get_if<Dict>(&objects_[id]);
    if (id != Objects::kNone && (dict == nullptr || !dict->contents.empty()))
      throw PickleError(fmt::format("makes a tensor with {}", what));
  }

  // Arguments: none; by Python 2 one, the list of [key, value].
  ObjectId ordered_dict(Arguments arguments) {
    expect_count(arguments, 0, 1);
    Dict dict{true, {}};
    if (arguments.size() == 1) {
      for (const auto item : get<List>(arguments[0]).elements) {
        const auto& pair = get<List>(item).elements;
        if (pair.size() != 2) throw PickleError(fmt::format("makes an OrderedDict with an item of {} parts", pair.size()));
        for (const auto id : pair) push(dict.contents, id, budget_);
      }
    }
    return objects_.add(std::move(dict));
  }

  // Arguments: ("cpu") or ("cuda", 0)
  ObjectId device(Arguments arguments) {
    expect_count(arguments, 1, 2);
    const auto type = get<std::string_view>(arguments[0]);
    if (arguments.size() == 1) return arguments[0];
    budget_.take(type.size());
    return objects_.add_text(fmt::format("{}:{}", type, get<int64_t>(arguments[1])));
  }

  // Arguments: (storage, offset, size, stride, requires_grad, hooks, dtype[, metadata])
  ObjectId rebuild_tensor_v3(Arguments arguments) {
    expect_count(arguments, 7, 8);
    const auto dtype = get<Global>(arguments[6]);
    if (dtype.kind != Global::Kind::kDtype) throw PickleError("makes a tensor without a dtype");
    if (arguments.size() == 8) expect_empty(arguments[7], "metadata");
    return rebuild_tensor_v2(arguments.first(6), dtype.dtype);
  }

  // Arguments: (storage, offset, size, stride, requires_grad, hooks[, metadata]). `dtype` nullptr: the storage's.
  ObjectId rebuild_tensor_v2(Arguments arguments, const Dtype* dtype) {
    expect_count(arguments, 6, 7);
    get<bool>(arguments[4]);
    expect_empty(arguments[5], "hooks");
    if (arguments.size() == 7) expect_empty(arguments[6], "metadata, such as that of conjugated tensors");
    return make_tensor(arguments.first(4), dtype);
  }

  // Arguments: (storage, offset, size, stride). `dtype` nullptr: the storage's.
  ObjectId make_tensor(Arguments arguments, const Dtype* dtype) {
    const auto& storage = get<Storage>(arguments[0]);
    if (dtype == nullptr) dtype = storage.dtype;
    if (dtype == nullptr) throw PickleError("makes a tensor without a dtype");
    const auto element_size = c10::elementSize(dtype->type);
    if (storage.begin % element_size != 0) {
      throw PickleError(
          fmt::format("makes a tensor of {} that begins within an element, at byte {} of its storage", dtype->name, storage.begin));
    }
    const auto sizes = integers(arguments[2]);
    const auto strides = integers(arguments[3]);
    const auto offset = get<int64_t>(arguments[1]);
    check_bounds(storage.size / element_size, offset, sizes, strides);
    check_copy(sizes, element_size);
    budget_.take(kTensorMemory);
    auto tensor = torch::empty({0}, torch::dtype(dtype->type));
    tensor.set_(storage.memory, static_cast<int64_t>(storage.begin / element_size) + offset, sizes, strides);
    return objects_.add(std::move(tensor));
  }

  // LibTorch's memory for a tensor without its storage, including sizes and strides.
  static constexpr size_t kTensorMemory = 512;
  // LibTorch's kernels support no more.
  static constexpr size_t kMaxDimensions = 64;

  std::vector<int64_t> integers(ObjectId id) {
    const auto& elements = get<Tuple>(id).elements;
    if (elements.size() > kMaxDimensions) throw PickleError(fmt::format("makes a tensor of {} dimensions", elements.size()));
    std::vector<int64_t> values;
    for (const auto element : elements) values.push_back(get<int64_t>(element));
    return values;
  }

  // Verifies that every element is inside the storage.
  static void check_bounds(size_t num_elements, int64_t offset, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    bool is_bad = offset < 0 || sizes.size() != strides.size();
    bool is_empty = false;
    int64_t last = offset;
    for (size_t i = 0; !is_bad && i < sizes.size(); ++i) {
      int64_t distance = 0;
      is_bad = sizes[i] < 0 || strides[i] < 0;
      is_empty = is_empty || sizes[i] == 0;
      is_bad = is_bad || (sizes[i] > 0 && __builtin_mul_overflow(sizes[i] - 1, strides[i], &distance));
      is_bad = is_bad || __builtin_add_overflow(last, distance, &last);
    }
    if (is_bad || static_cast<uint64_t>(is_empty ? offset : last) > num_elements ||
        (!is_empty && static_cast<uint64_t>(last) == num_elements)) {
      throw PickleError(fmt::format("makes a tensor that reaches beyond its storage (offset {}, sizes [{}], strides [{}], {} elements)",
                                    offset, fmt::join(sizes, ", "), fmt::join(strides, ", "), num_elements));
    }
  }

  // Strides of 0 let a small file describe a huge tensor, and the first copy of it would fill the memory.
  void check_copy(const std::vector<int64_t>& sizes, size_t element_size) const {
    const auto num_bytes = num_bytes_of(sizes, element_size);
    if (!num_bytes || *num_bytes > budget_.limit()) {
      throw PickleError(fmt::format("makes a tensor of sizes [{}] from few bytes, by repeating them", fmt::join(sizes, ", ")));
    }
  }

  Objects& objects_;
  Budget& budget_;
};

}  // namespace

Global find_global(std::string_view module, std::string_view name) {
  using Kind = Global::Kind;
  if (module == "collections" && name == "OrderedDict") return {Kind::kOrderedDict};
  if (module == "collections" && name == "Counter") return {Kind::kCounter};
  if (module == "torch._utils" && name == "_rebuild_tensor") return {Kind::kRebuildTensor};
  if (module == "torch._utils" && name == "_rebuild_tensor_v2") return {Kind::kRebuildTensorV2};
  if (module == "torch._utils" && name == "_rebuild_tensor_v3") return {Kind::kRebuildTensorV3};
  if (module == "torch._utils" && name == "_rebuild_parameter") return {Kind::kRebuildParameter};
  if (module == "torch.nn.parameter" && name == "Parameter") return {Kind::kParameter};
  if (module == "torch.storage" && name == "UntypedStorage") return {Kind::kStorage};
  if (module == "torch") {
    if (name == "Size") return {Kind::kSize};
    if (name == "device") return {Kind::kDevice};
    if (const auto* dtype = find_dtype_by_storage(name)) return {Kind::kStorage, dtype};
    if (const auto* dtype = find_dtype_by_name(name)) return {Kind::kDtype, dtype};
  }
  throw PickleError(
      fmt::format("uses {}, which is not plain data and is never executed here", in_quotes(fmt::format("{}.{}", module, name))));
}

ObjectId call(Objects& objects, Budget& budget, ObjectId function, ObjectId arguments) {
  const auto* global = std::get_if<Global>(&objects[function]);
  const auto* tuple = std::get_if<Tuple>(&objects[arguments]);
  if (global == nullptr || tuple == nullptr) {
    throw PickleError(fmt::format("calls {} with {}", describe(objects[function]), describe(objects[arguments])));
  }
  return Caller(objects, budget).call(*global, tuple->elements);
}

void set_state(Objects& objects, Budget& budget, ObjectId object, ObjectId state) { Caller(objects, budget).set_state(object, state); }

}  // namespace trainer::checkpoint
