#pragma once
// One operator of LibTorch as operators of ONNX.

#include <torch/script.h>

#include <functional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "export/onnx/model.h"

namespace trainer::onnx {

// The ONNX network that is being made, with the names of the values of the traced graph.
class Graph {
 public:
  void name(const torch::jit::Value* value, std::string name) { names_[value] = std::move(name); }
  const std::string& name_of(const torch::jit::Value* value) const { return names_.at(value); }
  // A parameter or buffer as a constant.
  void add_parameter(const torch::jit::Value* value, const std::string& path, const torch::Tensor& tensor);
  // Each returns the name of its result.
  std::string add_constant(const torch::Tensor& tensor);
  std::string add_node(const char* op, std::vector<std::string> inputs, std::map<std::string, Attribute> attributes = {});

  // The operator If, whose branches are the nodes that each function adds; they return float32 of four dimensions.
  std::string add_choice(const std::string& condition, const std::function<std::string()>& if_true,
                         const std::function<std::string()>& if_false);
  // Whether constants of floating point are added as float16 from now on, instead of float32.
  void set_half(bool half) { is_half_ = half; }

  // [batch, ...] of a tensor, as it was traced, or the shape of a parameter.
  std::vector<int64_t> shape_of(const torch::jit::Value* value) const;

  Model& model() { return model_; }

 private:
  Model model_;
  size_t num_nodes_ = 0;
  bool is_half_ = false;
  std::unordered_map<const torch::jit::Value*, std::string> names_;
  std::unordered_map<const torch::jit::Value*, std::vector<int64_t>> parameter_shapes_;
  std::set<std::string> parameters_;
};

// `name`: "aten::relu_".
bool has_conversion(const std::string& name);
// Adds the operator, which has a conversion. Throws UsageError if the conversion does not know this form of it.
void convert_operator(const torch::jit::Node& node, Graph& graph);

}  // namespace trainer::onnx
