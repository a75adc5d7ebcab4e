#pragma once
// The state of LibTorch's optimizers in the form of Python's, for checkpoints that torch.optim loads.

#include "trainer/state.h"

namespace torch::optim {
class Optimizer;
}

namespace trainer::optim {

// torch.optim's state_dict() of a torch::optim::SGD, Adam or AdamW. Shares the memory of its tensors. Throws UsageError for an optimizer of
// another class.
state::Tree state_of(torch::optim::Optimizer& optimizer);
// Restores the result of state_of() or of Python's state_dict(): the state of each parameter, bit for bit, and the learning rate of each
// group. The other options stay as they were set. Throws CheckpointError when the groups, a shape or a dtype differ, and may have loaded a
// part by then.
void load_state_of(torch::optim::Optimizer& optimizer, const state::View& view);

}  // namespace trainer::optim
