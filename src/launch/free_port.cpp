#include "launch/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace trainer::launch {

FreePort::FreePort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (socket_ < 0 || bind(socket_, generic, length) != 0 || getsockname(socket_, generic, &length) != 0) {
    const int reason = errno;
    if (socket_ >= 0) close(socket_);
    throw Error("no free port on 127.0.0.1: " + std::generic_category().message(reason));
  }
  number_ = ntohs(address.sin_port);
}

FreePort::~FreePort() { close(socket_); }

}  // namespace trainer::launch
