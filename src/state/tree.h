#pragma once
// The state of a run's components as they save and load it: an ordered tree of tensors, numbers and text, like the nested dictionaries of
// PyTorch's checkpoints.

#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace trainer::state {

class Tree;
struct Item;

// torch.optim numbers its parameters; all other keys are names.
using Key = std::variant<std::string, int64_t>;
using List = std::vector<Tree>;

// Items in the order in which they were added.
class Dict {
 public:
  // Defined in tree.cpp: Item is still incomplete here, which clang rejects for these.
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
  void items() const&& = delete;  // a loop over the items would outlive the dictionary

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

// "layer1.weight", or "3".
std::string to_string(const Key& key);

// Dtype and shape, for messages: "Float[2, 3]".
std::string describe(const torch::Tensor& tensor);

// The tensors of a tree, in the tree's order.
std::vector<torch::Tensor> tensors_of(const Tree& tree);
// A copy of the tree with its tensors replaced by `tensors`, which must be as many and in the same order.
Tree with_tensors(const Tree& tree, const std::vector<torch::Tensor>& tensors);

}  // namespace trainer::state
