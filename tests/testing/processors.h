#pragma once

#include <hwy/targets.h>

namespace trainer::testing {

// Calls act(name) with each instruction set that this processor supports and that the kernels were compiled for.
template <class Act>
void for_each_kind_of_processor(const Act& act) {
  const auto choose_again = [](int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().DeInit();
  };
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    choose_again(target);
    act(hwy::TargetName(target));
  }
  choose_again(0);
}

}  // namespace trainer::testing
