#include "inference/place_model.h"

#include <algorithm>

#include "base/text.h"
#include "nn/batch_norm.h"
#include "nn/layers.h"
#include "trainer/nn.h"

namespace trainer::inference {

device::Placement placement_for(const models::Model& model, device::Placement placement) {
  if (!placement.network_chooses_format || model.prefers_channels_last()) return placement;
  placement.memory_format = torch::MemoryFormat::Contiguous;
  placement.convolution = device::ConvolutionChoice::kDirect;
  return placement;
}

void place_model(models::Model& model, const device::Placement& placement) {
  using device::ConvolutionChoice;
  model.to(placement.device, placement.dtype);
  // LibTorch's Module::to() also converts the batch counters, which must stay integers, as in Python's Module.to().
  for (const auto& module : model.modules()) {
    if (!nn::is_libtorch_batch_norm(*module)) continue;
    for (auto& buffer : module->named_buffers(/*recurse=*/false)) {
      if (buffer.key() == "num_batches_tracked") buffer.value().set_data(buffer.value().to(torch::kLong));
    }
  }
  for (auto& parameter : model.parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(placement.memory_format));
  }
  if (placement.fuse) nn::use_fused_operators(model, placement.cuda, placement.device.type());
  if (placement.convolution == ConvolutionChoice::kWinograd2) nn::use_winograd(model, nn::convolution::Tile::k2);
  if (placement.convolution == ConvolutionChoice::kWinograd4) nn::use_winograd(model, nn::convolution::Tile::k4);
}

bool takes_shape(const std::vector<int64_t>& wanted, const std::vector<int64_t>& shape) {
  return std::ranges::equal(wanted, shape, [](int64_t want, int64_t have) { return want == -1 || want == have; });
}

std::string input_shape_text(const std::vector<int64_t>& wanted) {
  std::vector<std::string> sizes;
  for (const int64_t size : wanted) sizes.push_back(size != -1 ? std::to_string(size) : sizes.size() == 1 ? "H" : "W");
  return join(sizes, "x");
}

}  // namespace trainer::inference
