#pragma once
// Reads a tree from an untrusted source, such as a file: anything unexpected throws a CheckpointError that names the problem and its place.

#include <optional>
#include <string>
#include <vector>

#include "state/tree.h"

namespace trainer::state {

// A place in a tree, which must outlive it.
class View {
 public:
  // `source`: the tree's origin, for messages: "runs/a/checkpoints/step_00000100.pt".
  View(const Tree& tree, std::string source);

  // These three are for dictionaries.
  View at(const Key& key) const;
  std::optional<View> find(const Key& key) const;
  std::vector<Key> keys() const;
  // For lists.
  std::vector<View> elements() const;

  bool is_none() const;
  bool flag() const;
  int64_t integer() const;
  double number() const;  // also accepts an integer
  const std::string& text() const;
  const torch::Tensor& tensor() const;
  // Writes the tensor's values into `destination`, whose shape and dtype it must have.
  void copy_to(torch::Tensor destination) const;

  // "model.conv1.weight"; empty at the root.
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

}  // namespace trainer::state
