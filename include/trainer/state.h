#pragma once
// The saved state of a run's components: an ordered tree of tensors, numbers and text, like PyTorch's checkpoints.

#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trainer/error.h"

namespace torch::nn {
class Module;
}

namespace trainer::state {

class Tree;
struct Item;

// torch.optim numbers its parameters; all other keys are names.
using Key = std::variant<std::string, int64_t>;
using List = std::vector<Tree>;

// Items in the order in which they were added.
class Dict {
 public:
  // Not defined here, because the type Item is incomplete.
  Dict();
  ~Dict();
  Dict(const Dict& other);
  Dict(Dict&& other) noexcept;
  Dict& operator=(const Dict& other);
  Dict& operator=(Dict&& other) noexcept;

  // `key` must not exist yet.
  void add(Key key, Tree value);
  const Tree* find(const Key& key) const;
  const std::vector<Item>& items() const& { return items_; }
  void items() const&& = delete;  // in a loop over a temporary, the items would outlive the dictionary

 private:
  std::vector<Item> items_;
};

// One value. Copies share their tensors' memory.
class Tree {
 public:
  using Value = std::variant<std::monostate, bool, int64_t, double, std::string, torch::Tensor, List, Dict>;

  // Python's None.
  Tree() = default;
  Tree(bool value) : value_(value) {}
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool>) Tree(Integer value) : value_(static_cast<int64_t>(value)) {}
  Tree(double value) : value_(value) {}
  Tree(std::string value) : value_(std::move(value)) {}
  Tree(const char* value) : value_(std::string(value)) {}
  Tree(torch::Tensor value) : value_(std::move(value)) {}
  Tree(List value) : value_(std::move(value)) {}
  Tree(Dict value) : value_(std::move(value)) {}

  const Value& value() const { return value_; }

 private:
  Value value_;
};

struct Item {
  Key key;
  Tree value;
};

// Such as "layer1.weight" or "3".
std::string to_string(const Key& key);

// Dtype and shape for messages, such as "Float[2, 3]".
std::string describe(const torch::Tensor& tensor);

// The tensors of a tree, in the tree's order.
std::vector<torch::Tensor> tensors_of(const Tree& tree);
// A copy of the tree with its tensors on the CPU; tensors that are already there share their memory.
Tree to_cpu(const Tree& tree);
// A copy of the tree with its tensors replaced by `tensors`, which must have the same number and order.
Tree with_tensors(const Tree& tree, const std::vector<torch::Tensor>& tensors);

// A position in a tree, which must outlive it. Anything unexpected throws a CheckpointError that says what is wrong and where.
class View {
 public:
  // `source`: the tree's file, for messages.
  View(const Tree& tree, std::string source);

  // at(), find() and keys() require a dictionary.
  View at(const Key& key) const;
  std::optional<View> find(const Key& key) const;
  std::vector<Key> keys() const;
  std::vector<View> elements() const;

  bool is_none() const;
  bool flag() const;
  int64_t integer() const;
  double number() const;  // accepts an integer, too
  const std::string& text() const;
  const torch::Tensor& tensor() const;
  // `destination` must have the tensor's shape and dtype.
  void copy_to(torch::Tensor destination) const;

  // Such as "model.conv1.weight"; empty at the root.
  const std::string& path() const { return path_; }
  // Throws CheckpointError: "<source>: <path>: <what>".
  [[noreturn]] void fail(const std::string& what) const;

 private:
  View(const Tree& tree, std::string source, std::string path);
  template <typename T>
  const T& get(const char* expected) const;

  const Tree* tree_;
  std::string source_;
  std::string path_;
};

// Parameters and buffers by name, in the order of Python's Module.state_dict(). The tensors share the module's memory.
Dict state_of(const torch::nn::Module& module);
// Copies the values into the module. Throws CheckpointError if a name is missing or unknown, or if a shape or dtype differs (except the
// dtype of num_batches_tracked); some tensors may have been loaded by then.
void load_state_of(torch::nn::Module& module, const View& view);

// The state of LibTorch's default generators: "cpu", and for a GPU "cuda", as torch.get_rng_state() and torch.cuda.get_rng_state() return
// them.
Dict random_state(torch::Device device = torch::kCPU);
// Restores a result of random_state(). Throws CheckpointError.
void load_random_state(const View& view, torch::Device device = torch::kCPU);

}  // namespace trainer::state
