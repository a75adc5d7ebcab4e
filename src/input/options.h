#pragma once

namespace trainer::input {

// How ranks share a training set whose size is not a multiple of their number: repeat some samples or leave some out, as PyTorch's
// DistributedSampler does with drop_last false and true, or take each of them once.
enum class Shards { kPad, kDrop, kExact };

}  // namespace trainer::input
