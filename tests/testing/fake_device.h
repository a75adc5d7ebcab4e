#pragma once
// A device for LibTorch's events, in place of a GPU. Its work progresses only when the test advances it, or when the host waits for an
// event. Each thread has one device.

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <functional>

namespace trainer::testing {

class FakeDevice : public c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::PrivateUse1> {
 public:
  static inline const c10::Device kDevice{c10::DeviceType::PrivateUse1};

  // Queues work.
  static void work(double seconds) { given += seconds; }
  // Completes all queued work.
  static void catch_up() { done = given; }

  static inline thread_local double given = 0;  // seconds of queued work
  static inline thread_local double done = 0;
  static inline thread_local int num_events = 0;             // number of existing events
  static inline thread_local int num_waits = 0;              // number of waits for events that the device had not reached
  static inline thread_local std::function<void()> on_wait;  // called when the host waits for an event

  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) ++num_events;
    delete static_cast<double*>(*event);
    *event = new double(given);
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    --num_events;
    delete static_cast<double*>(event);
  }
  bool queryEvent(void* event) const override { return *static_cast<double*>(event) <= done; }
  void synchronizeEvent(void* event) const override {
    if (!queryEvent(event)) ++num_waits;
    if (on_wait) on_wait();
    done = std::max(done, *static_cast<double*>(event));
  }
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    return (*static_cast<double*>(second) - *static_cast<double*>(first)) * 1000;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, FakeDevice)

}  // namespace trainer::testing
