#include "launch/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <random>
#include <system_error>

#include "base/error.h"

namespace trainer::launch {
namespace {

// Below the range of ephemeral ports: otherwise a connection of a parallel run could get the port between the destruction of this object
// and the use of its number.
constexpr int kFirst = 15000;
constexpr int kLast = 32000;
constexpr int kTries = 200;

bool take(int descriptor, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

FreePort::FreePort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  std::random_device random;
  std::uniform_int_distribution<int> ports(kFirst, kLast);
  for (int i = 0; i < kTries && descriptor() >= 0; ++i) {
    number_ = ports(random);
    if (take(descriptor(), number_)) return;
  }
  throw Error("no free port on 127.0.0.1: " + std::generic_category().message(errno));
}

}  // namespace trainer::launch
