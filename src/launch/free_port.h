#pragma once
// A free TCP port of this host.

#include "base/descriptor.h"

namespace trainer::launch {

// Binds a random free port of 127.0.0.1; no other socket can bind it until this object is destroyed. Throws Error when there is none.
class FreePort {
 public:
  FreePort();

  int number() const { return number_; }
  // The bound socket, to be inherited by the process that listens; the destructor closes it in this process.
  int descriptor() const { return socket_.number(); }

 private:
  Descriptor socket_;
  int number_ = 0;
};

}  // namespace trainer::launch
