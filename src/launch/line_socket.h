#pragma once
// TCP connections that carry lines of text.

#include <chrono>
#include <optional>
#include <string>

#include "base/descriptor.h"

namespace trainer::launch {

// The kernel probes an idle connection after `interval` and then as often; it is lost when `attempts` probes are not answered. A launcher
// answers while its host is up, even if it is suspended.
struct KeepAlive {
  std::chrono::seconds interval{5};
  int attempts = 3;
};

// A connected socket. Nothing waits.
class LineSocket {
 public:
  explicit LineSocket(Descriptor socket = Descriptor()) : socket_(std::move(socket)) {}
  // Takes a connected socket and makes it non-blocking, with `keep_alive`.
  LineSocket(Descriptor socket, const KeepAlive& keep_alive);

  // -1: closed, or lost.
  int descriptor() const { return socket_.number(); }
  // Readable or not, takes what has arrived, up to a limit: if there is more, the socket stays readable once next_line() has returned all
  // lines. Closes the socket when the connection is lost, ended or sends a line that is too long.
  void receive();
  // The next line that has been received, without its newline.
  std::optional<std::string> next_line();
  // Closes the socket if the other end does not take the line.
  void send(const std::string& line);
  // After that the other end has received all lines, it sees the end of the connection.
  void end();
  void close() { socket_.close(); }

 private:
  Descriptor socket_;
  std::string received_;
};

// A socket that is bound to the address of `host` if that is one of this host, else, also while the name cannot be resolved, to all of its
// addresses; `port` 0: a free one. Throws
// PeerError.
Descriptor bind_to_host(const std::string& host, int port);
int port_of(const Descriptor& socket);

// A connection to host:port. Waits up to `timeout`, or until `wake_up` is readable; without a connection, returns a closed Descriptor and
// sets `reason`.
Descriptor connect_to(const std::string& host, int port, std::chrono::milliseconds timeout, int wake_up, std::string& reason);

}  // namespace trainer::launch
