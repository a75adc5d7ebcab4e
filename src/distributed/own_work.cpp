#include "distributed/own_work.h"

namespace trainer::distributed {

void OwnWork::pause() {
  if (running_ != nullptr) running_->stop();
}

void OwnWork::go_on() {
  if (running_ != nullptr) running_->start();
}

void OwnWork::switch_to(device::Stopwatch* next) {
  pause();
  running_ = next;
  go_on();
}

}  // namespace trainer::distributed
