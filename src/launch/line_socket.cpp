#include "launch/line_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <system_error>

#include "base/error.h"

namespace trainer::launch {
namespace {

constexpr size_t kLongestLine = 4096;

std::string describe(int error) { return std::generic_category().message(error); }

void set(int socket, int level, int option, int value) { setsockopt(socket, level, option, &value, sizeof value); }

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Null, with `reason`, for a name that cannot be resolved.
Addresses resolve(const std::string& host, int port, std::string& reason) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int result = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (result != 0) reason = fmt::format("the name {} cannot be resolved: {}", host, gai_strerror(result));
  return {result == 0 ? found : nullptr, &freeaddrinfo};
}

// An address with all interfaces of this host.
sockaddr_storage any_address(int family, int port, socklen_t& size) {
  sockaddr_storage address{};
  if (family == AF_INET6) {
    auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address);
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(static_cast<uint16_t>(port));
    size = sizeof ipv6;
  } else {
    auto& ipv4 = reinterpret_cast<sockaddr_in&>(address);
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(static_cast<uint16_t>(port));
    size = sizeof ipv4;
  }
  return address;
}

}  // namespace

LineSocket::LineSocket(Descriptor socket, const KeepAlive& keep_alive) : socket_(std::move(socket)) {
  fcntl(descriptor(), F_SETFL, O_NONBLOCK);
  const auto seconds = static_cast<int>(keep_alive.interval.count());
  set(descriptor(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set(descriptor(), IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set(descriptor(), IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  set(descriptor(), IPPROTO_TCP, TCP_KEEPCNT, keep_alive.attempts);
  // No probes are sent while a line waits to be acknowledged.
  set(descriptor(), IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * seconds * keep_alive.attempts);
  set(descriptor(), IPPROTO_TCP, TCP_NODELAY, 1);
}

void LineSocket::receive() {
  std::array<char, 4096> buffer;
  while (descriptor() >= 0 && received_.size() <= kLongestLine) {
    const auto length = recv(descriptor(), buffer.data(), buffer.size(), 0);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (length <= 0) return close();
    received_.append(buffer.data(), static_cast<size_t>(length));
  }
  if (received_.size() > kLongestLine && received_.find('\n') == std::string::npos) close();
}

std::optional<std::string> LineSocket::next_line() {
  const auto end = received_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  auto line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return line;
}

void LineSocket::send(const std::string& line) {
  // Lines are short, so one that does not fit into the buffer of the connection means that the other end reads nothing.
  if (descriptor() >= 0 && ::send(descriptor(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) close();
}

void LineSocket::end() {
  if (descriptor() >= 0) shutdown(descriptor(), SHUT_WR);
}

Descriptor bind_to_host(const std::string& host, int port) {
  std::string ignored;
  const auto addresses = resolve(host, port, ignored);
  const auto bind_to = [port](int family, const sockaddr* address, socklen_t size) {
    Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // Not for a free port, which another program could then get too.
    if (port != 0) set(socket.number(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (socket.number() < 0 || bind(socket.number(), address, size) != 0) socket.close();
    return socket;
  };
  Descriptor socket;
  if (addresses) socket = bind_to(addresses->ai_family, addresses->ai_addr, addresses->ai_addrlen);
  // The name is not known yet, or its address belongs to something in front of this host, such as a service of Kubernetes.
  if (!addresses || (socket.number() < 0 && errno == EADDRNOTAVAIL)) {
    const int family = addresses ? addresses->ai_family : AF_INET;
    socklen_t size = 0;
    const auto any = any_address(family, port, size);
    socket = bind_to(family, reinterpret_cast<const sockaddr*>(&any), size);
  }
  if (socket.number() < 0)
    throw PeerError(fmt::format("cannot listen at {}:{}: {}; choose another --master-port on all hosts", host, port, describe(errno)));
  return socket;
}

int port_of(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket.number(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

Descriptor connect_to(const std::string& host, int port, std::chrono::milliseconds timeout, int wake_up, std::string& reason) {
  const auto addresses = resolve(host, port, reason);
  if (!addresses) return Descriptor();
  Descriptor socket(::socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = connect(socket.number(), addresses->ai_addr, addresses->ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    std::array<pollfd, 2> wanted = {{{socket.number(), POLLOUT, 0}, {wake_up, POLLIN, 0}}};
    poll(wanted.data(), wanted.size(), static_cast<int>(timeout.count()));
    error = ETIMEDOUT;
    socklen_t size = sizeof error;
    if (wanted[0].revents != 0) getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error == 0) return socket;
  reason = describe(error);
  return Descriptor();
}

}  // namespace trainer::launch
