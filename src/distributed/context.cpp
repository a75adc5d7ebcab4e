// The library's entry to a run: trainer/distributed.h.

#include <fmt/format.h>
#include <torch/version.h>

#include "base/log.h"
#include "device/placement.h"
#include "distributed/data_parallel.h"
#include "distributed/process_groups.h"
#include "distributed/rendezvous.h"
#include "trainer/distributed.h"
#include "world/rank_env.h"

namespace trainer::distributed {

struct Context::State {
  world::RankEnv rank_env;
  std::shared_ptr<Logger> logger;
  Meeting meeting;  // its stores warn with the logger, and the groups use them
  torch::Device device{torch::kCPU};
  std::unique_ptr<ProcessGroups> groups;
};

Context::Context(std::unique_ptr<State> state) : state_(std::move(state)) {}
Context::~Context() = default;

int Context::rank() const { return state_->rank_env.rank; }
int Context::world_size() const { return state_->rank_env.world_size; }
int Context::local_rank() const { return state_->meeting.local_rank; }
torch::Device Context::device() const { return state_->device; }
const std::shared_ptr<ProcessGroup>& Context::world() const { return state_->groups->world(); }
std::shared_ptr<ProcessGroup> Context::new_group(std::vector<int> ranks) { return state_->groups->new_group(std::move(ranks)); }
void Context::shutdown() { state_->groups->shutdown(); }

namespace {

Meeting meet_others(const world::RankEnv& rank_env, std::chrono::milliseconds timeout, Logger& logger) {
  const auto point = world::rendezvous_address(rank_env, /*configured_init_method=*/"env://");
  if (point.kind == world::RendezvousAddress::Kind::kAlone) {
    return {.store = {}, .group_store = {}, .ranks = {this_process()}, .address = "127.0.0.1", .local_rank = rank_env.local_rank};
  }
  const Introduction mine{.rank = this_process(), .version = fmt::format("libtrainer {} with LibTorch {}", TRAINER_VERSION, TORCH_VERSION)};
  return meet(rank_env, point, mine, rank_env.secret, timeout, logger);
}

torch::Device choose_device(const std::optional<torch::Device>& wanted, int local_rank, const device::CudaAccess& cuda) {
  device::PlacementOptions options;
  if (wanted) options.device = wanted->is_cuda() ? device::DeviceChoice::kCuda : device::DeviceChoice::kCpu;
  const auto chosen = device::choose_placement(options, {.local_rank = local_rank}, cuda).device;
  return wanted && wanted->has_index() ? *wanted : chosen;
}

}  // namespace

std::unique_ptr<Context> init_process_group(const InitOptions& options) {
  // Before any other use of LibTorch.
  device::CudaAccess cuda;
  if (!options.device || options.device->is_cuda()) cuda = device::open_cuda_module();
  auto state = std::make_unique<Context::State>();
  state->rank_env = world::find_rank_env({}, world::process_environment());
  state->logger = make_console_logger(state->rank_env.rank);
  state->meeting = meet_others(state->rank_env, options.timeout, *state->logger);
  state->device = choose_device(options.device, state->meeting.local_rank, cuda);
  if (state->device.is_cuda()) cuda.module->set_device(state->device.index());
  const auto& meeting = state->meeting;
  if (meeting.store) {
    const GroupOptions of_groups{.backend = options.backend,
                                 .device = state->device,
                                 .cuda = state->device.is_cuda() ? cuda.module : nullptr,
                                 .gloo_interface = state->rank_env.gloo_interface,
                                 .gloo_address = meeting.address,
                                 .timeout = options.timeout,
                                 .ranks = meeting.ranks};
    state->groups = std::make_unique<ProcessGroups>(meeting.group_store, state->rank_env.rank, state->rank_env.world_size, of_groups);
  } else {
    state->groups = std::make_unique<ProcessGroups>();
  }
  return std::unique_ptr<Context>(new Context(std::move(state)));
}

DistributedDataParallel::DistributedDataParallel(torch::nn::Module& model, std::shared_ptr<ProcessGroup> group,
                                                 const DataParallelOptions& options)
    : group_(std::move(group)), data_parallel_(std::make_unique<DataParallel>(model, group_, options)) {}

DistributedDataParallel::~DistributedDataParallel() = default;

void DistributedDataParallel::before_forward() { data_parallel_->before_forward(is_first_, synchronizes_); }

void DistributedDataParallel::backward(const torch::Tensor& loss) {
  // DataParallel sums over the ranks.
  const auto share = group_->size() == 1 ? loss : loss / group_->size();
  data_parallel_->backward(share, share, synchronizes_);
  is_first_ = synchronizes_;
}

void DistributedDataParallel::backward(const torch::Tensor& loss, double weight) {
  auto total = torch::full({}, weight, torch::kFloat64);
  group_->sum_in_rank_order({&total, 1});
  const auto share = loss * (weight / total.item<double>());
  data_parallel_->backward(share, share, synchronizes_);
  is_first_ = synchronizes_;
}

void DistributedDataParallel::sync_buffers() const { data_parallel_->sync_buffers(); }

}  // namespace trainer::distributed
