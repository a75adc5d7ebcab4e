#pragma once
// Conversions to ONNX of the operators of your own layers, for `trainer export`.

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "trainer/error.h"

namespace trainer {

// One use of an operator of LibTorch in a traced network. Arguments are counted from 0, in the order of LibTorch's schema, such as
// "selu(Tensor self)". Functions that read an argument throw for one of another type, which ends the export with a message that names the
// operator.
class OnnxOperator {
 public:
  using Attribute = std::variant<int64_t, float, std::vector<int64_t>>;

  virtual ~OnnxOperator() = default;
  // The name of the ONNX value of a tensor, for add_node(); and its shape [batch, ...], in which the batch may have any size.
  virtual std::string tensor(size_t argument) const = 0;
  virtual std::vector<int64_t> shape(size_t argument) const = 0;
  virtual double number(size_t argument) const = 0;
  virtual int64_t integer(size_t argument) const = 0;
  virtual std::vector<int64_t> integers(size_t argument) const = 0;
  // Adds an operator of ONNX (operator set 17), or a constant; return the name of the result.
  virtual std::string add_node(const std::string& op, std::vector<std::string> inputs,
                               std::map<std::string, Attribute> attributes = {}) = 0;
  virtual std::string add_constant(const torch::Tensor& tensor) = 0;
};

// `name`: of an operator of LibTorch, such as "aten::selu". `convert` returns the name of the value that equals the operator's result.
// Replaces an earlier conversion of the operator.
void register_onnx_conversion(const std::string& name, std::function<std::string(OnnxOperator& op)> convert);

}  // namespace trainer
