#pragma once

#include <string>

struct Fault {
  std::string rank, phase, action;
  int number = -1;  // N; -1 in ranks without a fault
};

// TRAINER_TEST_FAULT has one of these forms; N counts from 0. "RANK|all training|validation N ACTION": when a rank computes the loss for
// the N-th time in training or validation. "RANK start 0 ACTION": when it opens its data. "RANK checkpoint N ACTION": when it contributes
// to the N-th checkpoint. "RANK save_POINT N ACTION": when it reaches a point of saving its N-th checkpoint: opened, half_written,
// before_fsync, before_rename, before_link. "RANK loading N slow": when its loader has a batch ready. The action `slow` applies to all
// later steps or batches too.
const Fault& planted_fault();
void act(const std::string& action);

// From now on, every read of the mapped data files fails as if the file had been shortened.
void lose_mapped_data();
// From now on the process cannot allocate more memory.
void limit_memory();
