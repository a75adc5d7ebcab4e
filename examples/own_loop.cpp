// A custom training loop with LibTorch's modules, optimizer and data loader. Saves FILE after each epoch; continues from it if it exists.
//   torchrun --nproc-per-node 2 --no-python ./own_loop FILE [float32|float64|bfloat16|float16]
#include <torch/torch.h>
#include <trainer/amp.h>
#include <trainer/checkpoint.h>
#include <trainer/data.h>
#include <trainer/distributed.h>
#include <trainer/nn.h>
#include <trainer/optim.h>

#include <iostream>

struct NetImpl : torch::nn::Module {
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).bias(false)));
  torch::nn::BatchNorm2d norm = register_module("norm", torch::nn::BatchNorm2d(8));
  torch::nn::Linear fc = register_module("fc", torch::nn::Linear(8, 10));
  torch::Tensor forward(const torch::Tensor& x) { return fc(torch::relu(norm(conv(x))).amax({2, 3})); }
};
TORCH_MODULE(Net);

struct Images : torch::data::datasets::Dataset<Images> {
  torch::Tensor images = torch::rand({512, 1, 12, 12}), labels = images.flatten(1).slice(1, 0, 10).argmax(1);
  torch::data::Example<> get(size_t i) override { return {images[static_cast<int64_t>(i)], labels[static_cast<int64_t>(i)]}; }
  std::optional<size_t> size() const override { return images.size(0); }
};

void train(const std::string& file, const std::string& precision) {
  const auto run = trainer::distributed::init_process_group();
  const auto dtype = precision == "float64" ? torch::kFloat64 : torch::kFloat32;
  const auto autocast =
      precision.ends_with("float16") ? std::optional(precision == "float16" ? torch::kFloat16 : torch::kBFloat16) : std::nullopt;
  torch::manual_seed(1);
  const Images images;
  Net net;
  net->to(run->device(), dtype);
  // In a separate group, because gradients and batch statistics are exchanged at the same time.
  trainer::nn::convert_sync_batch_norm(*net, run->new_group(run->world()->ranks()));
  trainer::distributed::DistributedDataParallel parallel(*net, run->world());
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  trainer::amp::GradScaler scaler({.enabled = precision == "float16"}, run->device());
  trainer::data::DistributedSampler sampler(images.images.size(0), run->rank(), run->world_size());
  int64_t epoch = 0;
  if (std::filesystem::exists(file)) {
    const auto tree = trainer::checkpoint::load(file);
    const trainer::state::View saved(tree, file);
    trainer::state::load_state_of(*net, saved.at("model"));
    trainer::optim::load_state_of(optimizer, saved.at("optimizer"));
    scaler.load_state(saved.at("scaler"));
    epoch = saved.at("epoch").integer();
  }
  for (; epoch < 4; ++epoch) {
    sampler.set_epoch(epoch);
    const auto loader = torch::data::make_data_loader(Images(images).map(torch::data::transforms::Stack<>()), sampler, 32);
    for (const auto& batch : *loader) {
      parallel.before_forward();
      std::optional<trainer::amp::AutocastGuard> guard(std::in_place, run->device().type(), autocast);
      const auto loss = torch::cross_entropy_loss(net(batch.data.to(run->device(), dtype)), batch.target.to(run->device()));
      guard.reset();
      optimizer.zero_grad();
      parallel.backward(scaler.scale(loss));
      scaler.step(optimizer);
      scaler.update();
      if (run->rank() == 0) std::cout << loss.item<double>() << std::endl;
    }
    if (run->rank() != 0) continue;
    trainer::state::Dict tree;
    tree.add("epoch", epoch + 1);
    tree.add("model", trainer::state::state_of(*net));
    tree.add("optimizer", trainer::optim::state_of(optimizer));
    tree.add("scaler", scaler.state());
    trainer::checkpoint::save(file, trainer::state::to_cpu(std::move(tree)));
  }
  run->shutdown();
}

int main(int argc, char** argv) try {
  train(argc > 1 ? argv[1] : "last.pt", argc > 2 ? argv[2] : "float32");
} catch (const std::exception& error) {
  return std::cerr << "error: " << error.what() << "\n", 1;
}
