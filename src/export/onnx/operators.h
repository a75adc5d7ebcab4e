#pragma once
// Converts an operator of LibTorch to operators of ONNX.

#include <torch/script.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "export/onnx/model.h"

namespace trainer::onnx {

// The ONNX network under construction, with the names of the values of the traced graph.
class Graph {
 public:
  void name(const torch::jit::Value* value, std::string name) { names_[value] = std::move(name); }
  const std::string& name_of(const torch::jit::Value* value) const { return names_.at(value); }
  // Adds a parameter or buffer as a constant.
  void add_parameter(const torch::jit::Value* value, const std::string& path, const torch::Tensor& tensor);
  // These functions return the name of the result.
  std::string add_constant(const torch::Tensor& tensor);                          // float64 keeps its type
  std::string add_constant(const torch::Tensor& tensor, torch::ScalarType real);  // `real`: the type of floating-point elements
  std::string add_node(const char* op, std::vector<std::string> inputs, std::map<std::string, Attribute> attributes = {});

  // Adds the operator If. Each function adds the nodes of one branch and returns the name of its result, a float32 value with four
  // dimensions.
  std::string add_choice(const std::string& condition, const std::function<std::string()>& if_true,
                         const std::function<std::string()>& if_false);
  // Sets whether floating-point constants are added as float16 instead of float32 from now on.
  void set_half(bool half) { is_half_ = half; }

  // Not set: any.
  void set_batch_size(std::optional<int64_t> batch_size) { batch_size_ = batch_size; }
  const std::optional<int64_t>& batch_size() const { return batch_size_; }

  // The shape [batch, ...] of a tensor when it was traced, or the shape of a parameter.
  std::vector<int64_t> shape_of(const torch::jit::Value* value) const;

  Model& model() { return model_; }

 private:
  torch::ScalarType real_type() const { return is_half_ ? torch::kHalf : torch::kFloat; }

  Model model_;
  size_t num_nodes_ = 0;
  bool is_half_ = false;
  std::optional<int64_t> batch_size_;
  std::unordered_map<const torch::jit::Value*, std::string> names_;
  std::unordered_map<const torch::jit::Value*, std::vector<int64_t>> parameter_shapes_;
  std::set<std::string> parameters_;
};

// `name`: "aten::relu_".
bool has_conversion(const std::string& name);
// Adds an operator, for which has_conversion() must be true. Throws UsageError if the conversion does not support this form of the
// operator.
void convert_operator(const torch::jit::Node& node, Graph& graph);
// Adds the tensors that prim::ListUnpack takes from the list of an aten::unbind.
void convert_list_unpack(const torch::jit::Node& node, Graph& graph);

}  // namespace trainer::onnx
