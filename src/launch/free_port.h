#pragma once
// A TCP port of this host that nobody else uses.

#include "base/descriptor.h"

namespace trainer::launch {

// Holds a port of 127.0.0.1, chosen at random; nobody else can bind it until this is destroyed. Throws Error when there is none.
class FreePort {
 public:
  FreePort();

  int number() const { return number_; }
  // The bound socket, for the process that is to listen; closed with this object here.
  int descriptor() const { return socket_.number(); }

 private:
  Descriptor socket_;
  int number_ = 0;
};

}  // namespace trainer::launch
