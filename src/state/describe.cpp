#include "state/describe.h"

#include <sstream>

namespace trainer::state {

std::string describe(const torch::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.scalar_type() << tensor.sizes();
  return text.str();
}

}  // namespace trainer::state
