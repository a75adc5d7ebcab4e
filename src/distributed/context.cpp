#include "distributed/context.h"

#include <c10/util/ScopeExit.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "base/log.h"
#include "device/libtorch_settings.h"
#include "device/placement.h"
#include "distributed/activity.h"
#include "distributed/data_parallel.h"
#include "distributed/process_groups.h"
#include "distributed/rendezvous.h"
#include "launch/world/rank_env.h"
#include "trainer/error.h"
#include "trainer/torch.h"
#include "trainer/version.h"

namespace trainer::distributed {

struct Context::State {
  world::RankEnv rank_env;
  std::shared_ptr<Logger> logger;
  Rendezvous rendezvous;  // declared between the logger, which its stores use, and the groups, which use its stores
  torch::Device device{torch::kCPU};
  std::unique_ptr<ProcessGroups> groups;
  std::jthread connection_watch;
};

Context::Context(std::unique_ptr<State> state) : state_(std::move(state)) {}
Context::~Context() = default;

int Context::rank() const { return state_->rank_env.rank; }
int Context::world_size() const { return state_->rank_env.world_size; }
int Context::local_rank() const { return state_->rendezvous.local_rank; }
torch::Device Context::device() const { return state_->device; }
const std::shared_ptr<ProcessGroup>& Context::world() const { return state_->groups->world(); }
std::shared_ptr<ProcessGroup> Context::new_group(std::vector<int> ranks) { return state_->groups->new_group(std::move(ranks)); }
void Context::shutdown() { state_->groups->shutdown(); }
const std::shared_ptr<Logger>& Context::logger() const { return state_->logger; }

ProcessGroups& ContextAccess::groups_of(Context& context) { return *context.state_->groups; }
int ContextAccess::num_processes_sharing_cpus(const Context& context) { return context.state_->rendezvous.num_sharing_cpus; }

namespace {

Rendezvous join_others(const world::RankEnv& rank_env, std::chrono::milliseconds timeout, Logger& logger) {
  const auto point = world::rendezvous_address(rank_env, /*configured_init_method=*/"env://");
  if (point.kind == world::RendezvousAddress::Kind::kAlone) {
    return {.store = {}, .group_store = {}, .ranks = {this_process()}, .address = "127.0.0.1", .local_rank = rank_env.local_rank};
  }
  const Hello mine{.rank = this_process(), .version = fmt::format("libtrainer {} with LibTorch {}", TRAINER_VERSION, TORCH_VERSION)};
  return join_run(rank_env, point, mine, rank_env.secret, timeout, logger);
}

torch::Device choose_device(const std::optional<torch::Device>& wanted, int local_rank, const device::CudaAccess& cuda) {
  if (wanted && !wanted->is_cuda() && !wanted->is_cpu())
    throw UsageError("a rank can use only the CPU or a CUDA GPU, but InitOptions::device is " + wanted->str() +
                     "; choose a CPU or CUDA device");
  if (wanted && wanted->is_cuda() && wanted->has_index() && cuda.module != nullptr) {
    const auto refusal =
        wanted->index() < cuda.module->device_count() ? cuda.module->device_refusal(wanted->index()) : "there is no such GPU";
    if (!refusal.empty())
      throw UsageError(fmt::format("InitOptions::device is {}, which cannot be used: {}; choose another device", wanted->str(), refusal));
    return *wanted;
  }
  device::PlacementOptions options;
  if (wanted) options.device = wanted->is_cuda() ? device::DeviceChoice::kCuda : device::DeviceChoice::kCpu;
  return device::choose_placement(options, {.local_rank = local_rank}, cuda).device;
}

}  // namespace

std::unique_ptr<Context> init_process_group(const InitOptions& options) {
  device::set_gpu_defaults();
  device::CudaAccess cuda;
  if (!options.device || options.device->is_cuda()) cuda = device::open_cuda_module();
  auto state = std::make_unique<Context::State>();
  state->rank_env = world::find_rank_env({}, world::process_environment());
  state->logger = make_console_logger(state->rank_env.rank);
  if (!options.device && !cuda.refusal.empty())
    state->logger->warn("an NVIDIA driver is installed, but this rank uses the CPU: {}", cuda.refusal);
  state->rendezvous = join_others(state->rank_env, options.timeout, *state->logger);
  state->device = choose_device(options.device, state->rendezvous.local_rank, cuda);
  if (state->device.is_cuda()) cuda.module->set_device(state->device.index());
  const auto& rendezvous = state->rendezvous;
  const auto activity = std::make_shared<Activity>();
  if (rendezvous.store) {
    const GroupOptions of_groups{.backend = options.backend,
                                 .device = state->device,
                                 .cuda = state->device.is_cuda() ? cuda.module : nullptr,
                                 .gloo_interface = state->rank_env.gloo_interface,
                                 .gloo_address = rendezvous.address,
                                 .timeout = options.timeout,
                                 .activity = activity,
                                 .ranks = rendezvous.ranks};
    state->groups = std::make_unique<ProcessGroups>(rendezvous.group_store, state->rank_env.rank, state->rank_env.world_size, of_groups);
    if (uses_nccl(of_groups)) {
      auto* groups = state->groups.get();
      state->connection_watch = watch_connections([groups] { return groups->connection_error(); },
                                                  [groups](const std::string& error) {
                                                    // The PeerError of the next collective adds the advice.
                                                    groups->abort_nccl(error.substr(0, error.find(';')));
                                                  });
    }
  } else {
    state->groups = std::make_unique<ProcessGroups>(rendezvous.ranks.front(), activity);
  }
  return std::unique_ptr<Context>(new Context(std::move(state)));
}

DistributedDataParallel::DistributedDataParallel(torch::nn::Module& model, std::shared_ptr<ProcessGroup> group,
                                                 const DataParallelOptions& options)
    : group_(std::move(group)), data_parallel_([&] {
        if (group_ && group_->has_data_parallel_) {
          throw std::logic_error(
              "another DistributedDataParallel uses this process group; make a group for each with Context::new_group()");
        }
        return std::make_unique<DataParallel>(model, group_, options, /*averages=*/true);
      }()) {
  for (const auto& parameter : data_parallel_->parameters()) {
    auto node = torch::autograd::impl::grad_accumulator(parameter);
    const auto hook = node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [this](const torch::autograd::variable_list& outputs, const torch::autograd::variable_list& /*inputs*/) {
          if (synchronizes_ && !is_in_backward_) has_kept_gradients_ = true;
          return outputs;
        }));
    hooks_.emplace_back(std::move(node), hook);
  }
  group_->has_data_parallel_ = true;
}

DistributedDataParallel::~DistributedDataParallel() {
  for (const auto& [node, hook] : hooks_) node->del_post_hook(hook);
  group_->has_data_parallel_ = false;
}

void DistributedDataParallel::before_forward() {
  if (has_kept_gradients_) {
    throw std::logic_error(
        "loss.backward() was called on a model of DistributedDataParallel, which does not exchange gradients; call "
        "parallel.backward(loss), or hold parallel.no_sync() to accumulate gradients of this rank");
  }
  data_parallel_->before_forward(is_first_, synchronizes_);
}

void DistributedDataParallel::backward(const torch::Tensor& loss) {
  is_in_backward_ = true;
  const auto leave = c10::make_scope_exit([this] { is_in_backward_ = false; });
  data_parallel_->backward(loss, synchronizes_);
  is_first_ = synchronizes_;
}

void DistributedDataParallel::backward(const torch::Tensor& loss, double weight) {
  // A weight that cannot be used makes the sum NaN on every rank, so that all ranks throw.
  auto total = torch::full({}, std::isfinite(weight) && weight >= 0 ? weight : std::nan(""), torch::kFloat64);
  group_->sum_in_rank_order({&total, 1});
  const auto sum = total.item<double>();
  if (!(sum > 0)) {
    throw UsageError(fmt::format(
        "the weights of all ranks must be finite, not negative, and not all 0, but this rank's is {} and their sum is {}; pass each rank's "
        "number of samples as its weight",
        weight, sum));
  }
  backward(loss * (weight / sum * group_->size()));
}

void DistributedDataParallel::sync_buffers() const { data_parallel_->sync_buffers(); }

}  // namespace trainer::distributed
