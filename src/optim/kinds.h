#pragma once
// The optimizers that optimizer_family() lists; each has a source file of its own.

#include "config/key_table.h"

namespace trainer::optim {

config::PartKind sgd_kind();    // torch.optim.SGD
config::PartKind adam_kind();   // torch.optim.Adam
config::PartKind adamw_kind();  // torch.optim.AdamW
config::PartKind sam_kind();    // sharpness-aware minimization over torch.optim.SGD

}  // namespace trainer::optim
