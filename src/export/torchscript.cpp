#include "export/torchscript.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <sstream>

#include "trainer/error.h"

namespace trainer::exported {
namespace {

// Returns a module without code that has the same parameters and buffers with the same names.
torch::jit::Module mirror(const torch::nn::Module& module, const std::shared_ptr<torch::jit::CompilationUnit>& unit) {
  torch::jit::Module copy("__torch__.Layer", unit, /*shouldMangle=*/true);
  copy.register_attribute("training", c10::BoolType::get(), false);  // set by Python's eval()
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    copy.register_parameter(item.key(), item.value(), /*is_buffer=*/false);
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) copy.register_buffer(item.key(), item.value());
  for (const auto& child : module.named_children()) copy.register_module(child.key(), mirror(*child.value(), unit));
  return copy;
}

torch::jit::Module trace(models::Model& model, const torch::Tensor& images, const char* method) {
  auto copy = mirror(model, std::make_shared<torch::jit::CompilationUnit>());
  const auto forward = [&](torch::jit::Stack inputs) { return torch::jit::Stack{model.forward(inputs.at(0).toTensor())}; };
  const auto no_names = [](const torch::Tensor&) { return std::string(); };
  const auto state = torch::jit::tracer::trace({images}, forward, no_names, /*strict=*/true, /*force_outplace=*/false, &copy, {"x"}).first;
  const c10::QualifiedName name(*copy.type()->name(), method);
  copy.type()->addMethod(copy._ivalue()->compilation_unit()->create_function(name, state->graph));
  return copy;
}

torch::Tensor random_images(models::Model& model, std::vector<int64_t> shape, int64_t batch_size) {
  shape.insert(shape.begin(), batch_size);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(batch_size));
  return at::randn(shape, generator, model.parameters().at(0).options().requires_grad(false));
}

// The same computation as in onnx/preprocessing.cpp. Dtype 6 is float32, and 7 is float64. `interpolation` is a value of the enumeration in
// data/dataset.h.
constexpr auto kResize = R"(
def sinc(self, x: Tensor) -> Tensor:
    x = x * 3.141592653589793
    return torch.where(x == 0, torch.ones_like(x), torch.sin(x) / x)

def kernel(self, x: Tensor, interpolation: int) -> Tensor:
    if interpolation == 0:
        return (1.0 - x).clamp(min=0.0)
    if interpolation == 1:
        near = (1.5 * x - 2.5) * x * x + 1.0
        far = ((2.5 - 0.5 * x) * x - 4.0) * x + 2.0
        return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))
    return torch.where(x < 3, self.sinc(x) * self.sinc(x / 3.0), torch.zeros_like(x))

def weights(self, before: int, after: int, interpolation: int, device: Device) -> Tuple[Tensor, Tensor]:
    if interpolation == 3:
        steps = torch.full([after], float(before) / float(after), dtype=7, device=device)
        steps[0] = steps[0] * 0.5
        nearest = steps.cumsum(0).floor()
        high = (torch.arange(before, device=device).unsqueeze(1) == nearest.unsqueeze(0)).to(6) * 2048.0
        return high, torch.zeros_like(high)
    to = (torch.arange(after, device=device) * 2 + 1) * before
    start = (torch.arange(before, device=device) * 2 + 1) * after
    x = ((to.unsqueeze(0) - start.unsqueeze(1)).to(7) / (2 * max(before, after))).abs()
    weight = self.kernel(x, interpolation)
    share = weight / weight.sum(0, keepdim=True) * 4194304.0
    whole = (share.abs() + 0.5).floor() * share.sign()
    high = (whole / 2048.0 + 0.5).floor()
    return high.to(6), (whole - high * 2048.0).to(6)

def to_pixels(self, high: Tensor, low: Tensor) -> Tensor:
    return ((high + ((low + 2097152.0) / 2048.0).floor()) / 2048.0).floor().clamp(0, 255)

def resize_rows(self, x: Tensor, width: int, interpolation: int) -> Tensor:
    high, low = self.weights(x.size(3), width, interpolation, x.device)
    return self.to_pixels(torch.matmul(x, high), torch.matmul(x, low))

def resize_columns(self, x: Tensor, height: int, interpolation: int) -> Tensor:
    high, low = self.weights(x.size(2), height, interpolation, x.device)
    return self.to_pixels(torch.matmul(high.t(), x), torch.matmul(low.t(), x))

def resize(self, x: Tensor, height: int, width: int, interpolation: int) -> Tensor:
    less_height = x.size(2) - height
    if less_height > 0 and less_height > 2 * (x.size(3) - width):
        x = self.resize_rows(self.resize_columns(x, height, interpolation), width, interpolation)
    else:
        x = self.resize_columns(self.resize_rows(x, width, interpolation), height, interpolation)
    return x

def resize_edge(self, x: Tensor, size: int, edge: int, interpolation: int) -> Tensor:
    return self.resize(x, max(size * x.size(2) // edge, 1), max(size * x.size(3) // edge, 1), interpolation)

def resize_inside(self, x: Tensor, height: int, width: int, interpolation: int) -> Tensor:
    ratio, wanted = float(x.size(3)) / float(x.size(2)), float(width) / float(height)
    if ratio > wanted:
        height = max(int(round(float(x.size(2)) / float(x.size(3)) * width)), 1)
    elif ratio < wanted:
        width = max(int(round(float(x.size(3)) / float(x.size(2)) * height)), 1)
    return self.resize(x, height, width, interpolation)

def pad_to(self, x: Tensor, height: int, width: int, fill: float) -> Tensor:
    rows, columns = height - x.size(2), width - x.size(3)
    top, left = int(round(rows / 2)), int(round(columns / 2))
    return torch.constant_pad_nd(x, [left, columns - left, top, rows - top], fill)

def center_crop(self, x: Tensor, height: int, width: int) -> Tensor:
    rows, columns = max(height - x.size(2), 0), max(width - x.size(3), 0)
    x = torch.constant_pad_nd(x, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2], 0)
    top, left = int(round((x.size(2) - height) / 2)), int(round((x.size(3) - width) / 2))
    return x[:, :, top : top + height, left : left + width]
)";

std::string line_of(const ResizeStep& step) {
  using Fit = ResizeStep::Fit;
  const auto interpolation = static_cast<int>(step.interpolation);
  switch (step.fit) {
    case Fit::kExact:
      return fmt::format("    x = self.resize(x, {}, {}, {})\n", step.height, step.width, interpolation);
    case Fit::kShorter:
      return fmt::format("    x = self.resize_edge(x, {}, min(x.size(2), x.size(3)), {})\n", step.height, interpolation);
    case Fit::kLonger:
      return fmt::format("    x = self.resize_edge(x, {}, max(x.size(2), x.size(3)), {})\n", step.height, interpolation);
    case Fit::kInside:
      break;
  }
  return fmt::format("    x = self.resize_inside(x, {}, {}, {})\n", step.height, step.width, interpolation);
}

std::string line_of(const PadStep& step) {
  if (const auto* frame = std::get_if<PadStep::Frame>(&step.size)) {
    return fmt::format("    x = self.pad_to(x, {}, {}, {}.0)\n", frame->height, frame->width, step.fill);
  }
  const auto& margins = std::get<PadStep::Margins>(step.size);
  return fmt::format("    x = torch.constant_pad_nd(x, [{}, {}, {}, {}], {})\n", margins.left, margins.right, margins.top, margins.bottom,
                     step.fill);
}

std::string line_of(const CropStep& step) { return fmt::format("    x = self.center_crop(x, {}, {})\n", step.height, step.width); }

// Returns TorchScript code that computes the answers from the variable `logits`.
std::string code_of(const Answers& answers) {
  using Kind = Answers::Kind;
  if (answers.kind == Kind::kSoftmax) return fmt::format("torch.softmax(logits / {:#}, 1)", answers.temperature);
  if (answers.kind == Kind::kSigmoid) return "torch.sigmoid(logits)";
  if (answers.deviation.empty()) return "logits";
  const auto tensor = [](const std::vector<double>& values) {
    return fmt::format("torch.tensor([{:.17e}], dtype=7, device=logits.device)", fmt::join(values, ", "));
  };
  return fmt::format("logits.to(7) * {} + {}", tensor(answers.deviation), tensor(answers.mean));
}

// Adds forward(), which prepares the input of the method logits_of() and returns the outputs of the interface. `dtype`: type of the
// network's parameters.
void add_forward(torch::jit::Module& module, const Interface& interface, torch::ScalarType dtype) {
  std::string prepare;
  if (const auto& preprocessing = interface.preprocessing) {
    module.define(kResize);
    prepare = "    x = x.permute(0, 3, 1, 2).contiguous().to(6)\n";
    for (const auto& step : preprocessing->steps) prepare += std::visit([](const auto& one) { return line_of(one); }, step);
    const auto of_channels = [](const std::vector<float>& values) {
      return fmt::format("torch.tensor([{:#}], device=x.device).view(-1, 1, 1)", fmt::join(values, ", "));
    };
    prepare += fmt::format("    x = ((x / 255.0 - {}) / {}).to({})\n", of_channels(preprocessing->mean), of_channels(preprocessing->std),
                           static_cast<int>(dtype));
  }
  const auto answers = code_of(interface.answers);
  const auto returned = interface.outputs == Outputs::kLogits    ? std::string("logits")
                        : interface.outputs == Outputs::kAnswers ? answers
                                                                 : "logits, " + answers;
  module.define(fmt::format("def forward(self, x):\n{}    logits = self.logits_of(x)\n    return {}\n", prepare, returned));
}

}  // namespace

torch::jit::Module trace_network(models::Model& model, const std::vector<int64_t>& sample_shape, const char* method) {
  const torch::NoGradGuard no_grad;
  model.eval();
  try {
    return trace(model, random_images(model, sample_shape, 2), method);
  } catch (const c10::Error& error) {
    const std::string reason = error.what_without_backtrace();
    throw Error(fmt::format("the network cannot be traced with samples of shape {}: {}", fmt::join(sample_shape, "x"),
                            reason.substr(0, reason.find('\n'))));
  }
}

std::string to_torchscript(models::Model& model, const std::vector<int64_t>& sample_shape, const std::string& description,
                           const Interface& interface) {
  const torch::NoGradGuard no_grad;
  const bool is_network = !interface.preprocessing && interface.outputs == Outputs::kLogits;
  const auto* const method = is_network ? "forward" : "logits_of";
  auto traced = trace_network(model, sample_shape, method);
  if (!is_network) add_forward(traced, interface, model.parameters().at(0).scalar_type());
  std::ostringstream written;
  traced.save(written, {{kTorchscriptDescription, description}});
  std::istringstream file(written.str());
  auto loaded = torch::jit::load(file);
  for (const int64_t batch_size : {2, 3}) {
    const auto x = random_images(model, sample_shape, batch_size);
    const auto expected = model.forward(x);
    const auto actual = loaded.get_method(method)({x}).toTensor();
    const bool same_shape = actual.sizes() == expected.sizes();
    // The traced network may use different kernels, whose results differ by a few float32 rounding errors.
    if (!same_shape || (actual - expected).abs().max().item<double>() > 1e-5 * expected.abs().max().item<double>()) {
      throw Error(
          fmt::format("for a batch of {} the outputs of the traced network differ from those of the network; make the network's forward() "
                      "independent of the batch size and of the values of its input",
                      batch_size));
    }
  }
  if (const auto& preprocessing = interface.preprocessing) {
    // Checks only that the computation succeeds; tests compare the pixels with Pillow's.
    loaded.forward({torch::zeros({2, 40, 60, preprocessing->channels}, torch::kUInt8)});
  }
  return written.str();
}

}  // namespace trainer::exported
