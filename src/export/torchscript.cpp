#include "export/torchscript.h"

#include <fmt/format.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <sstream>

#include "trainer/error.h"

namespace trainer::engine {
namespace {

// A module with the same parameters and buffers under the same names, without code.
torch::jit::Module mirror(const torch::nn::Module& module, const std::shared_ptr<torch::jit::CompilationUnit>& unit) {
  torch::jit::Module copy("__torch__.Layer", unit, /*shouldMangle=*/true);
  copy.register_attribute("training", c10::BoolType::get(), false);  // which Python's eval() sets
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    copy.register_parameter(item.key(), item.value(), /*is_buffer=*/false);
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) copy.register_buffer(item.key(), item.value());
  for (const auto& child : module.named_children()) copy.register_module(child.key(), mirror(*child.value(), unit));
  return copy;
}

torch::jit::Module trace(models::Model& model, const torch::Tensor& images) {
  auto copy = mirror(model, std::make_shared<torch::jit::CompilationUnit>());
  const auto forward = [&](torch::jit::Stack inputs) { return torch::jit::Stack{model.forward(inputs.at(0).toTensor())}; };
  const auto no_names = [](const torch::Tensor&) { return std::string(); };
  const auto state = torch::jit::tracer::trace({images}, forward, no_names, /*strict=*/true, /*force_outplace=*/false, &copy, {"x"}).first;
  const c10::QualifiedName name(*copy.type()->name(), "forward");
  copy.type()->addMethod(copy._ivalue()->compilation_unit()->create_function(name, state->graph));
  return copy;
}

torch::Tensor random_images(models::Model& model, std::vector<int64_t> shape, int64_t batch_size) {
  shape.insert(shape.begin(), batch_size);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(batch_size));
  return at::randn(shape, generator, model.parameters().at(0).options().requires_grad(false));
}

}  // namespace

torch::jit::Module trace_network(models::Model& model, const std::vector<int64_t>& sample_shape) {
  const torch::NoGradGuard no_grad;
  model.eval();
  return trace(model, random_images(model, sample_shape, 2));
}

std::string to_torchscript(models::Model& model, const std::vector<int64_t>& sample_shape, const std::string& description) {
  const torch::NoGradGuard no_grad;
  std::ostringstream written;
  trace_network(model, sample_shape).save(written, {{kTorchscriptDescription, description}});
  std::istringstream file(written.str());
  auto loaded = torch::jit::load(file);
  for (const int64_t batch_size : {2, 3}) {
    const auto x = random_images(model, sample_shape, batch_size);
    const auto expected = model.forward(x);
    const auto actual = loaded.forward({x}).toTensor();
    const bool same_shape = actual.sizes() == expected.sizes();
    // The traced network may use other kernels, whose results differ by a few roundings of float32.
    if (!same_shape || (actual - expected).abs().max().item<double>() > 1e-5 * expected.abs().max().item<double>()) {
      throw Error(fmt::format("the outputs of the traced network differ from those of the network for a batch of {}", batch_size));
    }
  }
  return written.str();
}

}  // namespace trainer::engine
