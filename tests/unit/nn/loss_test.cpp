#include <gtest/gtest.h>

#include <stdexcept>

#include "base/keys/key.h"
#include "tests/testing/read_component.h"
#include "trainer/error.h"
#include "trainer/nn.h"

namespace trainer::nn::test {
namespace {

// The loss of that name; `options` as a file sets them: "key: value, …".
std::unique_ptr<Loss> configured_loss(const std::string& name, const std::string& options = "") {
  return loss_registry().make(trainer::testing::read_component(loss_registry(), "{name: " + name + ", " + options + "}"));
}

torch::Tensor some_outputs(torch::ScalarType dtype = torch::kFloat64) {
  return at::randn({6, 4}, at::detail::createCPUGenerator(3), torch::kFloat64).mul_(3.0).to(dtype);
}
torch::Tensor some_classes() { return torch::tensor({0, 3, 1, 1, 2, 0}, torch::kInt64); }

TEST(CrossEntropy, IsTheMeanNegativeLogLikelihood) {
  const torch::Tensor outputs = some_outputs();
  const torch::Tensor log_probability = outputs - outputs.logsumexp(1, /*keepdim=*/true);
  const torch::Tensor expected = -log_probability.gather(1, some_classes().unsqueeze(1)).mean();
  const auto loss = configured_loss("cross_entropy");
  EXPECT_TRUE(loss->has_classes());
  EXPECT_NEAR((*loss)(outputs, some_classes()).item<double>(), expected.item<double>(), 1e-12);
}

TEST(CrossEntropy, SmoothingSpreadsAShareOverAllClasses) {
  const torch::Tensor outputs = some_outputs();
  const torch::Tensor log_probability = outputs - outputs.logsumexp(1, /*keepdim=*/true);
  const torch::Tensor target = at::one_hot(some_classes(), 4).to(torch::kFloat64) * 0.8 + 0.2 / 4;
  const torch::Tensor expected = -(target * log_probability).sum(1).mean();
  const auto loss = configured_loss("cross_entropy", "label_smoothing: 0.2");
  EXPECT_NEAR((*loss)(outputs, some_classes()).item<double>(), expected.item<double>(), 1e-12);
}

TEST(CrossEntropy, TakesTheProbabilitiesOfTheClasses) {
  const torch::Tensor outputs = some_outputs();
  const torch::Tensor log_probability = outputs - outputs.logsumexp(1, /*keepdim=*/true);
  const torch::Tensor one_hot = at::one_hot(some_classes(), 4).to(torch::kFloat64);
  const torch::Tensor probability = one_hot * 0.7 + one_hot.roll(1, 0) * 0.3;
  for (const double smoothing : {0.0, 0.2}) {
    const auto loss = configured_loss("cross_entropy", "label_smoothing: " + std::to_string(smoothing));
    const torch::Tensor target = probability * (1 - smoothing) + smoothing / 4;
    const torch::Tensor expected = -(target * log_probability).sum(1).mean();
    EXPECT_NEAR((*loss)(outputs, probability).item<double>(), expected.item<double>(), 1e-12);
    EXPECT_NEAR((*loss)(outputs, one_hot).item<double>(), (*loss)(outputs, some_classes()).item<double>(), 1e-12);
  }
}

TEST(CrossEntropy, SmoothingMustBeBelowOne) {
  const auto options = loss_registry().configure("cross_entropy").options;
  const SectionKeys section(*options);
  ASSERT_EQ(section.keys.size(), 2U);
  EXPECT_EQ(section.keys[0].name, "label_smoothing");
  EXPECT_TRUE(section.keys[0].read(Node::scalar("1.0")).has_value());
  EXPECT_TRUE(section.keys[0].read(Node::scalar("-0.1")).has_value());
}

TEST(CrossEntropy, WeighsSamplesByTheirClass) {
  const auto outputs = some_outputs();
  const auto weights = torch::tensor({0.5, 2.0, 1.0, 4.0}, torch::kFloat64);
  const auto log_probability = outputs - outputs.logsumexp(1, /*keepdim=*/true);
  const auto of_each = -log_probability.gather(1, some_classes().unsqueeze(1)).squeeze(1);
  const auto loss = configured_loss("cross_entropy", "class_weights: [0.5, 2, 1, 4]");
  ASSERT_TRUE(loss->weighs_samples());
  const auto of_samples = loss->sample_weights(some_classes());
  EXPECT_TRUE(of_samples.equal(weights.index_select(0, some_classes())));
  EXPECT_NEAR((*loss)(outputs, some_classes()).item<double>(), ((of_each * of_samples).sum() / of_samples.sum()).item<double>(), 1e-12);
  // With probabilities as targets, the mean is over the samples.
  const auto probabilities = at::one_hot(some_classes(), 4).to(torch::kFloat64);
  EXPECT_NEAR((*loss)(outputs, probabilities).item<double>(), (of_each * of_samples).mean().item<double>(), 1e-12);
  EXPECT_EQ(loss->sample_weights(probabilities).sum().item<double>(), 6);
  EXPECT_FALSE(configured_loss("cross_entropy")->weighs_samples());
  EXPECT_EQ(loss->refusal_of_classes(3), "has 4 numbers, but there are 3 classes; set one number per class");
  EXPECT_THROW((*loss)(torch::zeros({2, 3}), torch::zeros({2}, torch::kInt64)), UsageError);
}

// The values are those of torch.nn.functional.binary_cross_entropy_with_logits, with the targets of timm's BinaryCrossEntropy.
TEST(BinaryCrossEntropy, IsThatOfEachClassForItself) {
  const auto outputs = torch::tensor({{1.5, -0.5, 0.25}, {0.0, 2.0, -1.0}}, torch::kFloat64);
  const auto classes = torch::tensor({2, 1}, torch::kInt64);
  const auto probabilities = torch::tensor({{0.25, 0.0, 0.75}, {0.0, 1.0, 0.0}}, torch::kFloat32);
  const auto loss = configured_loss("bce");
  EXPECT_TRUE(loss->has_classes());
  EXPECT_NEAR((*loss)(outputs, classes).item<double>(), 0.6474610935271405, 1e-15);
  EXPECT_NEAR((*loss)(outputs, probabilities).item<double>(), 0.5953777601938072, 1e-15);
  EXPECT_NEAR((*configured_loss("bce", "label_smoothing: 0.1"))(outputs, classes).item<double>(), 0.6724610935271406, 1e-15);
  // For outputs in half precision, the loss is computed in float32.
  EXPECT_EQ((*loss)(outputs.to(torch::kBFloat16), classes).scalar_type(), torch::kFloat32);
}

// For two classes with the outputs 0 and x the loss is torchvision.ops.sigmoid_focal_loss(x, y, alpha=-1, gamma, reduction="mean").
TEST(Focal, OfTwoClassesIsThatOfTorchvision) {
  const auto x = torch::tensor({-2.0, 0.5, 3.0, -0.25}, torch::kFloat64);
  const auto outputs = torch::stack({torch::zeros_like(x), x}, 1);
  const auto classes = torch::tensor({0, 1, 0, 1}, torch::kInt64);
  const auto loss = configured_loss("focal");
  EXPECT_TRUE(loss->has_classes());
  EXPECT_NEAR((*loss)(outputs, classes).item<double>(), 0.7741723464701095, 1e-15);
  EXPECT_NEAR((*configured_loss("focal", "gamma: 0.5"))(outputs, classes).item<double>(), 0.9824527719912746, 1e-15);
  EXPECT_NEAR((*loss)(outputs, at::one_hot(classes, 2).to(torch::kFloat32)).item<double>(), 0.7741723464701095, 1e-15);
}

TEST(Focal, HasAGradientWhereTheNetworkIsSure) {
  for (const char* gamma : {"0", "0.5", "1", "2"}) {
    const auto outputs = torch::tensor({{100.0F, 0.0F}, {0.0F, 100.0F}}).requires_grad_();
    (*configured_loss("focal", std::string("gamma: ") + gamma))(outputs, torch::zeros({2}, torch::kInt64)).backward();
    EXPECT_TRUE(outputs.grad().isfinite().all().item<bool>()) << gamma;
    EXPECT_GT(outputs.grad()[1][1].item<float>(), 0.4F) << gamma;
  }
}

TEST(MeanSquaredError, IsTheMeanOverAllElements) {
  const torch::Tensor outputs = torch::tensor({{1.0, 2.0}, {3.0, 4.0}});
  const torch::Tensor targets = torch::tensor({{1.0, 0.0}, {0.0, 4.0}});
  const auto loss = configured_loss("mse");
  EXPECT_FALSE(loss->has_classes());
  EXPECT_FLOAT_EQ((*loss)(outputs, targets).item<float>(), (4.0F + 9.0F) / 4.0F);
}

TEST(MeanSquaredError, RefusesTargetsOfAnotherShape) {
  const auto loss = configured_loss("mse");
  EXPECT_THROW((*loss)(torch::zeros({4, 3}), torch::zeros({4, 1})), UsageError);
  EXPECT_THROW((*loss)(torch::zeros({4, 3}), torch::zeros({4}, torch::kInt64)), UsageError);
}

TEST(Loss, ValueIsAtLeastFloat32AndGradientHasTheOutputsType) {
  for (const std::string& name : loss_registry().names()) {
    const auto loss = configured_loss(name);
    for (const auto dtype : {torch::kBFloat16, torch::kHalf, torch::kFloat32, torch::kFloat64}) {
      const torch::Tensor outputs = some_outputs(dtype).requires_grad_();
      const torch::Tensor targets = loss->has_classes() ? some_classes() : torch::zeros({6, 4});
      const torch::Tensor value = (*loss)(outputs, targets);
      EXPECT_EQ(value.dim(), 0);
      EXPECT_EQ(value.scalar_type(), dtype == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32) << name << " of " << dtype;
      const torch::Tensor wide = (*loss)(outputs.detach().to(torch::kFloat64), targets);
      EXPECT_NEAR(value.item<double>(), wide.item<double>(), 1e-5 * wide.item<double>()) << name << " of " << dtype;
      value.backward();
      EXPECT_EQ(outputs.grad().scalar_type(), dtype);
      EXPECT_TRUE(outputs.grad().isfinite().all().item<bool>());
    }
  }
}

TEST(Loss, AnUnknownNameThrowsLogicError) { EXPECT_THROW(loss_registry().make({"hinge", nullptr}), std::logic_error); }

}  // namespace
}  // namespace trainer::nn::test
