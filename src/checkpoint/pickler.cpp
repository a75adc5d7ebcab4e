#include "checkpoint/pickler.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <unordered_map>

#include "base/bytes.h"
#include "checkpoint/dtypes.h"
#include "checkpoint/pickle_opcodes.h"

namespace trainer::checkpoint {
namespace {

using little_endian::append;

class Pickler {
 public:
  Pickle run(const state::Tree& tree) {
    code(Opcode::kProto);
    append(result_.program, kProtocol);
    value(tree);
    code(Opcode::kStop);
    return std::move(result_);
  }

 private:
  struct StorageEntry {
    size_t index;
    torch::ScalarType dtype;
  };

  void code(Opcode opcode) { result_.program += static_cast<char>(opcode); }

  // Writes the instructions, or, if they were written before, a reference to the object that they made.
  void once(const std::string& instructions) {
    const auto [entry, is_new] = memo_.try_emplace(instructions, static_cast<uint32_t>(memo_.size()));
    if (is_new) result_.program += instructions;
    const bool is_short = entry->second < 256;
    const auto put = is_short ? Opcode::kBinPut : Opcode::kLongBinPut;
    code(is_new ? put : is_short ? Opcode::kBinGet : Opcode::kLongBinGet);
    if (is_short) {
      append(result_.program, static_cast<uint8_t>(entry->second));
    } else {
      append(result_.program, entry->second);
    }
  }

  void global(const std::string& module, const std::string& name) {
    once(fmt::format("{}{}\n{}\n", static_cast<char>(Opcode::kGlobal), module, name));
  }

  void value(const state::Tree& tree) {
    std::visit([this](const auto& content) { value(content); }, tree.value());
  }

  void value(std::monostate) { code(Opcode::kNone); }

  void value(bool content) { code(content ? Opcode::kNewTrue : Opcode::kNewFalse); }

  void value(int64_t content) {
    if (content >= 0 && content <= std::numeric_limits<uint8_t>::max()) {
      code(Opcode::kBinInt1);
      append(result_.program, static_cast<uint8_t>(content));
    } else if (content >= std::numeric_limits<int32_t>::min() && content <= std::numeric_limits<int32_t>::max()) {
      code(Opcode::kBinInt);
      append(result_.program, static_cast<uint32_t>(content));
    } else {
      code(Opcode::kLong1);
      append(result_.program, uint8_t{sizeof(content)});
      append(result_.program, static_cast<uint64_t>(content));
    }
  }

  // Big-endian, unlike all other numbers in a pickle.
  void value(double content) {
    code(Opcode::kBinFloat);
    append(result_.program, __builtin_bswap64(std::bit_cast<uint64_t>(content)));
  }

  void value(const std::string& content) {
    TORCH_CHECK(content.size() <= std::numeric_limits<uint32_t>::max(), "a string of ", content.size(), " bytes is too long for a pickle");
    std::string instructions(1, static_cast<char>(Opcode::kBinUnicode));
    append(instructions, static_cast<uint32_t>(content.size()));
    once(instructions + content);
  }

  void value(const state::List& content) {
    code(Opcode::kEmptyList);
    if (content.empty()) return;
    code(Opcode::kMark);
    for (const auto& element : content) value(element);
    code(Opcode::kAppends);
  }

  void value(const state::Dict& content) {
    code(Opcode::kEmptyDict);
    if (content.items().empty()) return;
    code(Opcode::kMark);
    for (const auto& item : content.items()) {
      std::visit([this](const auto& key) { value(key); }, item.key);
      value(item.value);
    }
    code(Opcode::kSetItems);
  }

  // Like Tensor.__reduce_ex__ in torch/_tensor.py.
  void value(const torch::Tensor& tensor) {
    TORCH_CHECK(tensor.defined() && tensor.is_cpu() && tensor.layout() == torch::kStrided && !tensor.is_conj() && !tensor.is_neg(),
                "only dense (strided) tensors on the CPU without a conjugate or negative bit can be written; convert them with to_dense(), "
                "cpu(), resolve_conj() or resolve_neg()");
    const auto* dtype = find_dtype(tensor.scalar_type());
    TORCH_CHECK(dtype != nullptr, "tensors of ", tensor.scalar_type(), " cannot be written");
    global("torch._utils", dtype->storage != nullptr ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    code(Opcode::kMark);
    storage(tensor, *dtype);
    value(tensor.storage_offset());
    tuple(tensor.sizes());
    tuple(tensor.strides());
    value(tensor.requires_grad());
    // The tensor's hooks: an empty OrderedDict.
    global("collections", "OrderedDict");
    code(Opcode::kEmptyTuple);
    code(Opcode::kReduce);
    if (dtype->storage == nullptr) global("torch", dtype->name);
    code(Opcode::kTuple);
    code(Opcode::kReduce);
  }

  void storage(const torch::Tensor& tensor, const Dtype& dtype) {
    const auto& memory = tensor.storage();
    const auto [entry, is_new] =
        storages_.try_emplace(memory.unsafeGetStorageImpl(), StorageEntry{result_.storages.size(), tensor.scalar_type()});
    TORCH_CHECK(entry->second.dtype == tensor.scalar_type(),
                "tensors of different dtypes that share memory cannot be written; write a clone() of one of them");
    const auto num_elements = memory.nbytes() / tensor.itemsize();
    const auto size = num_elements * tensor.itemsize();
    if (is_new) result_.storages.push_back({memory.data(), size});
    code(Opcode::kMark);
    value(std::string("storage"));
    if (dtype.storage != nullptr) {
      global("torch", dtype.storage);
    } else {
      global("torch.storage", "UntypedStorage");
    }
    value(std::to_string(entry->second.index));
    value(std::string("cpu"));
    value(static_cast<int64_t>(dtype.storage != nullptr ? num_elements : size));
    code(Opcode::kTuple);
    code(Opcode::kBinPersId);
  }

  void tuple(torch::IntArrayRef integers) {
    if (!integers.empty()) code(Opcode::kMark);
    for (const auto integer : integers) value(integer);
    code(integers.empty() ? Opcode::kEmptyTuple : Opcode::kTuple);
  }

  Pickle result_;
  std::unordered_map<std::string, uint32_t> memo_;
  std::unordered_map<const c10::StorageImpl*, StorageEntry> storages_;
};

}  // namespace

Pickle pickle(const state::Tree& tree) { return Pickler().run(tree); }

}  // namespace trainer::checkpoint
