#include <gmock/gmock.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "tests/testing/scaler_cases.h"
#include "tests/unit/optim/golden.h"
#include "trainer/amp.h"
#include "trainer/error.h"
#include "trainer/torch.h"

namespace trainer::amp {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

torch::Tensor param_with_grad(const torch::Tensor& grad) {
  auto param = torch::zeros_like(grad).requires_grad_();
  param.mutable_grad() = grad.clone();
  return param;
}

// Whether the scaler finds a value in `grad`, the gradient of one step, that is not finite.
bool finds_inf(GradScaler& scaler, const torch::Tensor& grad) {
  scaler.unscale({param_with_grad(grad)});
  const auto found_inf = scaler.found_inf().item<float>();
  scaler.update();
  return found_inf != 0;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const std::string& yaml, std::vector<torch::Tensor> params) {
  return optim::make_optimizer(testing::read_component(optim::optimizer_registry(), yaml), {{.params = std::move(params)}});
}

// tests/golden/make_grad_scaler.py explains the tolerance of 1e-6 for the parameters.
void expect_near(const nlohmann::json& actual, const nlohmann::json& expected, double scale, const std::string& what) {
  EXPECT_LE(std::abs(actual.get<double>() - expected.get<double>()), 1e-6 * scale) << what;
}

TEST(GradScaler, TracesEqualPython) {
  const auto document = nlohmann::json::parse(std::ifstream(TRAINER_SOURCE_DIR "/tests/golden/grad_scaler.json"));
  ASSERT_EQ(document.at("cases").size(), 10U);
  for (const auto& expected : document.at("cases")) {
    const auto name = expected.at("name").get<std::string>();
    const auto actual = testing::run_scaler_case(expected);
    ASSERT_EQ(expected.at("trace").size(), 50U);
    ASSERT_EQ(actual.at("trace").size(), 50U);
    for (size_t step = 0; step < 50; ++step) {
      const auto& got = actual.at("trace")[step];
      const auto& wanted = expected.at("trace")[step];
      const auto what = name + ", step " + std::to_string(step);
      for (const size_t identical : {0, 1, 2}) EXPECT_EQ(got[identical], wanted[identical]) << what;
      for (const size_t sum : {3, 4}) expect_near(got[sum], wanted[sum], wanted[sum], what);
    }
    const auto& parameters = expected.at("parameters");
    ASSERT_EQ(actual.at("parameters").size(), parameters.size());
    double largest = 0;
    for (const auto& parameter : parameters) largest = std::max(largest, std::abs(parameter.get<double>()));
    for (size_t i = 0; i < parameters.size(); ++i) expect_near(actual.at("parameters")[i], parameters[i], largest, name);
  }
}

TEST(GradScaler, ScalesTheLossAndUnscalesTheGradient) {
  GradScaler scaler({.init_scale = 1024}, torch::kCPU);
  auto weight = torch::tensor({1.0F, -3.0F}).requires_grad_();
  scaler.scale((weight * weight).sum()).backward();
  EXPECT_TRUE(torch::equal(weight.grad(), torch::tensor({2048.0F, -6144.0F})));
  scaler.unscale({weight});
  EXPECT_TRUE(torch::equal(weight.grad(), torch::tensor({2.0F, -6.0F})));
  EXPECT_EQ(scaler.found_inf().item<float>(), 0);
  EXPECT_EQ(scaler.found_inf().scalar_type(), torch::kFloat32);
}

// unscale() handles one list for each type, in any memory layout.
TEST(GradScaler, UnscalesGradientsOfSeveralTypes) {
  GradScaler scaler({.init_scale = 4}, torch::kCPU);
  std::vector<torch::Tensor> params;
  for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    params.push_back(param_with_grad(torch::full({2, 3, 4, 5}, 8, dtype).contiguous(at::MemoryFormat::ChannelsLast)));
  }
  params.push_back(torch::ones({2}).requires_grad_());  // without a gradient
  scaler.unscale(params);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE((params[i].grad() == 2).all().item<bool>()) << i;
  EXPECT_FALSE(params[3].grad().defined());
}

TEST(GradScaler, FindsAnyElementThatIsNotFinite) {
  GradScaler scaler({}, torch::kCPU);
  for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    const auto grad = torch::ones({37}, dtype);  // not a multiple of the vector width
    EXPECT_FALSE(finds_inf(scaler, grad));
    for (const double value : {kInf, -kInf, kNaN}) {
      for (const int64_t index : {0, 20, 36}) EXPECT_TRUE(finds_inf(scaler, grad.clone().index_fill_(0, torch::tensor(index), value)));
    }
    EXPECT_FALSE(finds_inf(scaler, grad));
  }
  EXPECT_EQ(scaler.num_skipped(), 27);
}

TEST(GradScaler, DoesNotGrowPastFloat32) {
  GradScaler scaler({.init_scale = 2e38, .growth_interval = 2}, torch::kCPU);
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(scaler.growth_tracker().item<int>(), step % 2);
    EXPECT_FALSE(finds_inf(scaler, torch::ones({1})));
  }
  EXPECT_EQ(scaler.current_scale().item<float>(), 2e38F);
}

TEST(GradScaler, RefusesFloat16Gradients) {
  GradScaler scaler({}, torch::kCPU);
  EXPECT_THROW(scaler.unscale({param_with_grad(torch::ones({2}, torch::kFloat16))}), c10::Error);
}

TEST(GradScaler, CallsInTheWrongOrderAreRefused) {
  GradScaler scaler({}, torch::kCPU);
  const std::vector<torch::Tensor> params{param_with_grad(torch::ones({2}))};
  EXPECT_THROW(scaler.found_inf(), c10::Error);
  EXPECT_THROW(scaler.update(), c10::Error);
  EXPECT_THROW(scaler.unscale({torch::ones({2}).requires_grad_()}), c10::Error);
  scaler.unscale(params);
  EXPECT_THROW(scaler.unscale(params), c10::Error);
  scaler.update();
  EXPECT_THROW(scaler.found_inf(), c10::Error);
  EXPECT_THROW(scaler.update(), c10::Error);
  EXPECT_EQ(scaler.growth_tracker().item<int>(), 1);
}

// The gradients of a float16 network overflow until the scale is small enough; only after that do steps train the network.
TEST(GradScaler, FindsTheScaleOfAFloat16Network) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(1);
  const auto images = torch::randn({16, 8}, generator, torch::kFloat32);
  const auto targets = images.narrow(1, 0, 2) * 3;
  torch::nn::Linear linear(8, 2);
  const auto optimizer = make_optimizer("{name: sgd, lr: 0.1, momentum: 0.9}", linear->parameters());
  GradScaler scaler({.init_scale = std::pow(2.0, 30)}, torch::kCPU);
  double first_loss = 0;
  double last_loss = 0;
  for (int step = 0; step < 80; ++step) {
    torch::Tensor loss;
    {
      const AutocastGuard autocast(torch::kCPU, torch::kFloat16);
      loss = torch::mse_loss(linear(images), targets);
    }
    optimizer->zero_grad();
    scaler.scale(loss).backward();
    scaler.unscale(optimizer->parameters());
    optimizer->step(0.1, scaler.found_inf());
    scaler.update();
    last_loss = loss.item<double>();
    if (step == 0) first_loss = last_loss;
    const bool none_was_taken = scaler.num_skipped() == step + 1;
    EXPECT_TRUE(!none_was_taken || last_loss == first_loss) << step;
  }
  EXPECT_GT(scaler.num_skipped(), 5);
  EXPECT_LT(scaler.num_skipped(), 40);
  EXPECT_EQ(scaler.current_scale().item<double>(), std::pow(2.0, 30 - static_cast<double>(scaler.num_skipped())));
  EXPECT_LT(last_loss, first_loss / 100);
}

// Returns the scale, the growth tracker and the number of skipped steps after a step with each of the values as gradient.
std::vector<double> follow(GradScaler& scaler, const std::vector<double>& values) {
  std::vector<double> states;
  for (const double value : values) {
    finds_inf(scaler, torch::full({2}, value, torch::kFloat32));
    states.insert(states.end(), {scaler.current_scale().item<double>(), scaler.growth_tracker().item<double>(),
                                 static_cast<double>(scaler.num_skipped())});
  }
  return states;
}

TEST(GradScaler, GoesOnFromItsState) {
  const GradScalerOptions options{.init_scale = 1000.1, .growth_factor = 1.7, .growth_interval = 3};
  GradScaler original(options, torch::kCPU);
  follow(original, {1, 1, kInf, 1, 1});
  const auto tree = original.state();
  GradScaler other(options, torch::kCPU);
  follow(other, {1, kInf});
  other.unscale({param_with_grad(torch::ones({2}))});
  other.load_state(state::View(tree, "a.pt"));
  EXPECT_EQ(follow(other, {1, 1, 1, kNaN, 1, 1, 1}), follow(original, {1, 1, 1, kNaN, 1, 1, 1}));
}

TEST(GradScaler, ReadsPythonsStateAndRefusesOthers) {
  state::Dict python;
  python.add("scale", 1024.0);
  python.add("growth_factor", 3.0);
  python.add("backoff_factor", 0.25);
  python.add("growth_interval", 10);
  state::Tree tree(python);
  GradScaler scaler({.growth_interval = 100}, torch::kCPU);
  EXPECT_THAT([&] { scaler.load_state(state::View(tree, "a.pt")); },
              ::testing::ThrowsMessage<CheckpointError>("a.pt: has no \"_growth_tracker\""));
  python.add("_growth_tracker", 9);
  tree = python;
  scaler.load_state(state::View(tree, "a.pt"));
  EXPECT_EQ(scaler.num_skipped(), 0);
  EXPECT_EQ(follow(scaler, {1, kInf}), (std::vector<double>{1024, 10, 0, 512, 0, 1}));  // with the options' factors and interval
}

// With the larger scale both passes overflow, and the step restores the parameters bit for bit.
TEST(GradScaler, SamStepWithOverflow) {
  for (const double init_scale : {65536.0, 3e38}) {
    auto weight = torch::tensor({1.0F / 3, 4.0F}).requires_grad_();
    const auto before = weight.detach().clone();
    const auto optimizer = make_optimizer("{name: sam, rho: 0.5, lr: 0.1, momentum: 0.9}", {weight});
    GradScaler scaler({.init_scale = init_scale}, torch::kCPU);
    const auto loss = [&] { return (weight * weight).sum(); };
    scaler.scale(loss()).backward();
    optimizer->perturb_parameters();
    scaler.scale(loss()).backward();
    scaler.unscale({weight});
    optimizer->step(0.1, scaler.found_inf());
    scaler.update();
    const bool overflowed = init_scale > 1e38;
    EXPECT_EQ(scaler.num_skipped(), overflowed ? 1 : 0);
    if (overflowed) {
      EXPECT_TRUE(torch::equal(weight, before));
    } else {
      const auto expected = before - 0.1 * 2 * (before + 0.5 * before / before.norm());
      EXPECT_TRUE(torch::allclose(weight, expected, 1e-6, 0));  // a few roundings of float32
    }
  }
}

TEST(GradScaler, StepsLibTorchsOptimizersUnlessAGradientIsNotFinite) {
  auto parameter = torch::ones({2}).requires_grad_();
  torch::optim::SGD optimizer({parameter}, 0.5);
  GradScaler scaler({.init_scale = 8}, torch::kCPU);
  const auto step = [&](double factor) {
    optimizer.zero_grad();
    scaler.scale((parameter * factor).sum()).backward();
    const bool has_stepped = scaler.step(optimizer);
    EXPECT_THROW(scaler.step(optimizer), c10::Error);
    scaler.update();
    return has_stepped;
  };
  EXPECT_TRUE(step(1));
  EXPECT_TRUE(parameter.equal(torch::full({2}, 0.5)));
  EXPECT_FALSE(step(std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(parameter.equal(torch::full({2}, 0.5)));
  EXPECT_EQ(scaler.current_scale().item<float>(), 4);
}

TEST(GradScaler, ThatIsNotEnabledChangesNothing) {
  auto parameter = torch::ones({2}).requires_grad_();
  torch::optim::SGD optimizer({parameter}, 0.5);
  GradScaler scaler({.enabled = false}, torch::kCPU);
  const auto loss = parameter.sum();
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  loss.backward();
  scaler.unscale({parameter});
  EXPECT_TRUE(scaler.step(optimizer));
  scaler.update();
  EXPECT_TRUE(parameter.equal(torch::full({2}, 0.5)));
  const auto tree = scaler.state();
  scaler.load_state(state::View(tree, "a.pt"));
}

TEST(GradScaler, OptionsOutOfRangeAreRefused) {
  const auto refused = [](const GradScalerOptions& options, const std::string& message) {
    EXPECT_THAT([&] { GradScaler(options, torch::kCPU); }, ::testing::ThrowsMessage<OptionError>(::testing::StartsWith(message)));
  };
  for (const double scale : {0.0, -1.0, 1e39, kInf, kNaN}) refused({.init_scale = scale}, "init_scale: is ");
  for (const double factor : {1.0, 0.5, kInf, kNaN}) refused({.growth_factor = factor}, "growth_factor: is ");
  for (const double factor : {0.0, 1.0, kNaN}) refused({.backoff_factor = factor}, "backoff_factor: is ");
  refused({.growth_interval = 0}, "growth_interval: is 0; it must be at least 1");
}

}  // namespace
}  // namespace trainer::amp
