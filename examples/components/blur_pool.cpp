// A layer for `model: {name: layers}`: averages neighbouring pixels and then halves height and width (Zhang 2019), so that a shift of the
// image changes the result less than with pooling or a stride.

#include <torch/torch.h>
#include <trainer/registry.h>

namespace {

class BlurPool : public torch::nn::Module {
 public:
  explicit BlurPool(int64_t channels) : channels_(channels) {
    const auto line = torch::tensor({1., 2., 1.}, torch::kFloat32) / 4;
    filter_ = register_buffer("filter", torch::outer(line, line).repeat({channels, 1, 1, 1}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::conv2d(x, filter_, {}, /*stride=*/2, /*padding=*/1, /*dilation=*/1, /*groups=*/channels_);
  }

 private:
  int64_t channels_;
  torch::Tensor filter_;  // [channels, 1, 3, 3]
};

trainer::models::Layer make_blur_pool(const trainer::models::LayerOptions& /*options*/, const trainer::models::LayerContext& context) {
  const auto& shape = context.input_shape;
  if (shape.size() != 3) throw trainer::UsageError("needs an image; put this layer before flatten and global_avg_pool");
  return {torch::nn::AnyModule(std::make_shared<BlurPool>(shape[0])), {shape[0], (shape[1] + 1) / 2, (shape[2] + 1) / 2}};
}

}  // namespace

void add_blur_pool() {
  trainer::register_layer<trainer::models::LayerOptions>("blur_pool", "Halves an image after averaging neighbouring pixels.",
                                                         make_blur_pool);
}
