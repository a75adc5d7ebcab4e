#pragma once

#include <c10/util/Exception.h>

namespace trainer::nn {

// Base class of a T that changes what its thread computes while it exists. A thread can have one T at a time.
template <class T>
class OfThread {
 public:
  OfThread(const OfThread&) = delete;
  OfThread& operator=(const OfThread&) = delete;
  // The T of this thread, or null.
  static T* current() { return current_; }

 protected:
  OfThread() {
    TORCH_CHECK(current_ == nullptr, "this thread already has an object of this kind; destroy it before creating another");
    current_ = static_cast<T*>(this);
  }
  ~OfThread() { current_ = nullptr; }

 private:
  static inline thread_local T* current_ = nullptr;
};

}  // namespace trainer::nn
