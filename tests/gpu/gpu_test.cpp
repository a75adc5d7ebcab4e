// Tests of single parts of the program that need a GPU; tests/gpu/*.py run the whole program. Without a GPU they are skipped, or fail under
// TRAINER_REQUIRE_GPU=1.

#include "nn/fused_norm/gpu.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "device/cuda_module.h"
#include "distributed/process_groups.h"
#include "tests/testing/small_run.h"
#include "tests/testing/temporary_folder.h"
#include "train/engine/device_batches.h"
#include "train/engine/train_step.h"
#include "trainer/nn.h"

namespace trainer {
namespace {

const std::string kText =
    "experiment: gpu\n"
    "model: {name: resnet20}\n"
    "dataset: {name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 320, num_validation: 16}\n"
    "dataloader: {batch_size: 16, num_workers: 2}\n"
    "optimizer: {name: sgd, lr: 0.01, momentum: 0.9}\n"
    "runtime: {device: cuda, threads: 1}\n"
    "training: {epochs: 1}\n"
    "logging: {every_steps: 1}\n";

// The session of a run on the GPU.
struct GpuSession {
  explicit GpuSession(const std::vector<std::string>& overrides, const std::filesystem::path& checkpoints = {})
      : context(testing::SmallSession::load(kText, overrides), {.num_threads = 2}, make_quiet_logger()),
        recipe(testing::SmallSession::recipe_of(context, checkpoints)),
        session(context.this_rank(), recipe) {}

  engine::Parts& parts() { return session.parts(); }

  rank::RankContext context;
  recipe::Recipe recipe;
  session::Session session;
};

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto& access = cuda();
    if (access.module != nullptr) return;
    const auto reason = access.refusal.empty() ? "there is no NVIDIA driver, or it shows no GPU" : access.refusal;
    const char* required = std::getenv("TRAINER_REQUIRE_GPU");
    if (required != nullptr && std::string(required) == "1") FAIL() << "TRAINER_REQUIRE_GPU=1, but " << reason;
    GTEST_SKIP() << reason;
  }

  static const device::CudaAccess& cuda() {
    static const auto access = device::open_cuda_module();
    return access;
  }
  const torch::Device kDevice{torch::kCUDA, 0};
};

// While an object exists, every call that makes the host wait for the GPU throws.
class NoSync {
 public:
  NoSync() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR); }
  ~NoSync() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;
};

TEST_F(Gpu, AStepDoesNotMakeTheHostWait) {
  const std::vector<std::vector<std::string>> cases = {{"amp.enabled=false"},
                                                       {"amp.enabled=true"},
                                                       {"amp={enabled: true, dtype: float16}"},
                                                       {"training.max_grad_norm=1.0"},
                                                       {"training.ema={decay: 0.9}"},
                                                       {"training.accumulation_steps=2"},
                                                       {"optimizer={name: adamw, lr: 0.001}"},
                                                       {"optimizer={name: rmsprop, lr: 0.001, momentum: 0.9, centered: true}"},
                                                       {"optimizer={name: muon, lr: 0.01}"},
                                                       {"optimizer.groups=[{parameters: [fc], lr_factor: 2, weight_decay: 0.1}]"},
                                                       {"optimizer={name: sam, lr: 0.01}"},
                                                       {"runtime.fuse=on"},
                                                       {"runtime.cuda_graph=on"}};
  for (const auto& overrides : cases) {
    GpuSession session(overrides);
    auto& parts = session.parts();
    const auto& experiment = session.context.experiment();
    auto meter = parts.network.task->make_train_meter(kDevice);
    engine::TrainStep step(parts, 0, experiment.training.max_grad_norm, meter);
    parts.network.model->train();
    const auto part = engine::rest_of_epoch(parts.data.plan, 0);
    parts.data.begin(part, 0);
    for (int64_t number = 0; number < part.num_steps; ++number) {
      const auto run = [&] {
        step.run(engine::micro_steps_of(parts.data.plan, part, 0, number), [&]() -> const data::Batch& { return parts.data.next(); }, 0.01,
                 {});
      };
      // The first steps allocate memory and choose algorithms.
      if (number < 5) {
        run();
        continue;
      }
      const NoSync no_sync;
      EXPECT_NO_THROW(run()) << overrides.front() << ", step " << number;
    }
    EXPECT_EQ(meter.read(*parts.ranks.world).num_samples, 320) << overrides.front();
  }
}

// The results of a forward and a backward pass: the output, the gradients of x, residual, weight and bias, and the running statistics.
std::vector<torch::Tensor> pass_through(nn::BatchNorm2d& norm, const std::vector<torch::Tensor>& inputs, bool has_residual) {
  const auto x = inputs[0].detach().requires_grad_();
  const auto residual = inputs[1].detach().requires_grad_();
  const auto y = norm.forward_relu(x, has_residual ? residual : torch::Tensor());
  EXPECT_EQ(y.grad_fn()->name().find("FusedNorm") != std::string::npos, norm.uses_fused_operator()) << y.grad_fn()->name();
  y.backward(inputs[2]);
  std::vector<torch::Tensor> results = {y, x.grad(), norm.weight.grad(), norm.bias.grad(), norm.running_mean, norm.running_var};
  if (has_residual) results.push_back(residual.grad());
  for (auto& result : results) result = result.detach().to(torch::kCPU, torch::kFloat64);
  return results;
}

TEST_F(Gpu, FusedNormalisationEqualsSeparateOperators) {
  const auto kernels = std::make_shared<const nn::fused_norm::GpuKernels>(*cuda().module, torch::kCUDA);
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
    // A rounding to bfloat16 changes a value by at most 2^-8 of it, one to float16 by 2^-11. Results in float32 subtract a rounded mean.
    const double bound = dtype == torch::kBFloat16 ? 1.0 / 256 : dtype == torch::kFloat16 ? 1.0 / 2048 : 2e-6;
    for (const auto& shape : std::vector<std::vector<int64_t>>{{128, 64, 32, 32}, {3, 24, 7, 5}, {2, 2048, 7, 7}, {1, 8, 1, 3}}) {
      for (const auto& [has_residual, is_training] : {std::pair(false, true), {true, true}, {false, false}, {true, false}}) {
        SCOPED_TRACE(c10::str(dtype, " ", shape, has_residual ? " with a residual" : "", is_training ? " in training" : ""));
        std::vector<torch::Tensor> exact;
        std::vector<torch::Tensor> rounded;
        for (uint64_t seed = 1; seed <= 3; ++seed) {
          const auto values = (at::randn(shape, at::detail::createCPUGenerator(seed)) * 2 + 0.7).to(dtype);
          exact.push_back(values.to(torch::kFloat64));
          rounded.push_back(values.to(kDevice).contiguous(torch::MemoryFormat::ChannelsLast));
        }
        nn::BatchNorm2d plain(shape[1]);
        plain.to(torch::kFloat64);
        plain.train(is_training);
        nn::BatchNorm2d fused(shape[1]);
        fused.to(kDevice, torch::kFloat32);
        fused.use_fused_operator(kernels);
        fused.train(is_training);
        const auto expected = pass_through(plain, exact, has_residual);
        const auto actual = pass_through(fused, rounded, has_residual);
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_LE((actual[i] - expected[i]).norm().item<double>(), bound * expected[i].norm().item<double>()) << "result " << i;
        }
      }
    }
  }
}

TEST_F(Gpu, ABatchIsCopiedBeforeItsMemoryIsWrittenAgain) {
  for (const char* workers : {"dataloader.num_workers=0", "dataloader.num_workers=4"}) {
    for (const bool pins : {false, true}) {
      std::vector<torch::Tensor> expected;
      std::vector<torch::Tensor> copies;
      GpuSession session({workers, std::string("dataloader.pin_memory=") + (pins ? "true" : "false"), "amp.enabled=false"});
      auto& parts = session.parts();
      const auto part = engine::rest_of_epoch(parts.data.plan, 0);
      parts.data.begin(part, 0);
      const auto factor = torch::rand({4096, 4096}, kDevice);
      auto product = factor;
      engine::DeviceBatches batches(kDevice);
      for (int64_t number = 0; number < part.num_batches; ++number) {
        // Queues slow products first, so that the GPU reaches the copies of this batch long after the host has queued them.
        for (int i = 0; pins && i < 20; ++i) product = (product.mm(factor) / 4096).clone();
        const auto& batch = parts.data.next();
        expected.push_back(batch.images.clone());
        copies.push_back(batches.copy(batch).images.clone());
      }
      // Compared on the CPU, because an imitated GPU copies but does not compare.
      for (auto& images : copies) images = images.cpu();
      ASSERT_EQ(copies.size(), 20U);
      EXPECT_TRUE(testing::bitwise_equal(copies, expected)) << workers << (pins ? ", pinned memory" : "");
    }
  }
}

TEST_F(Gpu, BatchesMayDifferInSizeAndType) {
  engine::DeviceBatches batches(kDevice);
  std::vector<torch::Tensor> expected;
  std::vector<torch::Tensor> copies;
  for (const int64_t size : {3, 1, 5, 2, 4}) {
    for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
      const data::Batch batch{.images = at::randn({size, 3, 8, 8}).to(dtype), .targets = at::ones({size}), .size = size};
      expected.push_back(batch.images);
      copies.push_back(batches.copy(batch).images.clone());
    }
  }
  for (auto& images : copies) images = images.cpu();
  EXPECT_TRUE(testing::bitwise_equal(copies, expected));
  const auto on_device = at::zeros({2, 3, 8, 8}, kDevice);
  EXPECT_TRUE(batches.copy({.images = on_device, .targets = at::ones({2}), .size = 2}).images.is_same(on_device));
}

// Before step 3, sets the weights to values so large that the loss is not finite; restores them before step 4.
class LargeWeights : public engine::TrainingHook {
 public:
  explicit LargeWeights(engine::Parts& parts) : parts_(parts) {}

  void before_step(int64_t step) override {
    const torch::NoGradGuard no_grad;
    const auto parameters = parts_.network.model->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (step == 3) saved_.push_back(parameters[i].clone());
      if (step == 3) torch::Tensor(parameters[i]).fill_(std::numeric_limits<float>::max());
      if (step == 4) torch::Tensor(parameters[i]).copy_(saved_[i]);
    }
  }

 private:
  engine::Parts& parts_;
  std::vector<torch::Tensor> saved_;
};

TEST_F(Gpu, Float16SkipsOneStepOfANanLoss) {
  GpuSession session({"amp={enabled: true, dtype: float16, init_scale: 1024.0}"});
  LargeWeights hook(session.parts());
  testing::Recorder events;
  EXPECT_TRUE(session.session.train(events, [] { return false; }, {&hook}));
  EXPECT_EQ(session.parts().network.grad_scaler->num_skipped(), 1);
  EXPECT_EQ(session.parts().network.grad_scaler->current_scale().item<double>(), 512);
  for (const auto& line : events.train) EXPECT_TRUE(std::isfinite(testing::loss_of(line))) << line.step;
}

TEST_F(Gpu, CollectivesOfNcclWithOneRank) {
  const auto activity = std::make_shared<distributed::Activity>();
  distributed::ProcessGroups groups(c10::make_intrusive<c10d::HashStore>(), 0, 1,
                                    {.backend = distributed::BackendChoice::kNccl,
                                     .device = kDevice,
                                     .cuda = cuda().module,
                                     .activity = activity,
                                     .ranks = {distributed::this_process()}});
  const auto& world = *groups.world();
  const auto values = torch::arange(6, kDevice).to(torch::kFloat32);
  const auto sum = values.clone();
  world.all_reduce(sum);
  EXPECT_TRUE(world.to_host(sum).equal(values.cpu()));
  const auto all = world.all_gather(values.view({2, 3}));
  EXPECT_EQ(all.sizes(), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_TRUE(all[0].equal(values.view({2, 3})));
  world.broadcast(sum);
  world.barrier();
  EXPECT_EQ(groups.connection_error(), "");
  groups.shutdown();
}

TEST_F(Gpu, MemoryIsFreedAfterTraining) {
  const auto bytes_in_use = [] {
    // cuBLAS keeps memory for later products.
    at::cuda::clearCublasWorkspaces();
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
    return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].current;
  };
  const std::vector<std::vector<std::string>> cases = {
      {"amp={enabled: true, dtype: float16}", "training.ema={decay: 0.9}", "checkpoint.every_steps=10",
       "dataset.batch_transforms=[mixup: {}]"},
      {"optimizer={name: muon, lr: 0.01}", "training.accumulation_steps=2", "logging.histograms_every_epochs=1"},
      {"optimizer={name: sam, lr: 0.01}", "runtime.fuse=on"},
      {"runtime.cuda_graph=on", "optimizer={name: adamw, lr: 0.001}", "runtime.fuse=on"}};
  for (const auto& overrides : cases) {
    const auto before = bytes_in_use();
    const testing::TemporaryFolder folder;
    {
      GpuSession session(overrides, folder.path());
      testing::Recorder events;
      EXPECT_TRUE(session.session.train(events, [] { return false; }));
      EXPECT_GT(bytes_in_use(), before);
    }
    EXPECT_EQ(bytes_in_use(), before) << overrides.front();
  }
}

TEST_F(Gpu, MemoryAndPlaceOfTheDevice) {
  const auto tensor = torch::ones({1 << 20}, kDevice);
  EXPECT_GE(cuda().module->peak_memory(0), uint64_t{1} << 22);
  EXPECT_THAT(cuda().module->pci_bus_id(0), ::testing::MatchesRegex("[0-9a-f]+:[0-9a-f]+:[0-9a-f]+\\.0"));
  EXPECT_EQ(cuda().module->device_refusal(0), "");
}

}  // namespace
}  // namespace trainer
