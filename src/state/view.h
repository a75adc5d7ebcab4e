#pragma once
// Reading a tree that came from outside, such as a file: whatever is not as expected is a CheckpointError that says what and where.

#include <optional>
#include <string>
#include <vector>

#include "state/tree.h"

namespace trainer::state {

// A place in a tree, which must outlive it.
class View {
 public:
  // `source`: where the tree came from, for messages: "runs/a/checkpoints/step_00000100.pt".
  View(const Tree& tree, std::string source);

  // Of a dictionary.
  View at(const Key& key) const;
  std::optional<View> find(const Key& key) const;
  std::vector<Key> keys() const;
  // Of a list.
  std::vector<View> elements() const;

  bool is_none() const;
  bool flag() const;
  int64_t integer() const;
  double number() const;  // an integer, too
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
