#include "report/live_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "trainer/error.h"

namespace trainer::report {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kAddress = "127.0.0.1";
// Enough for several browsers, each of which uses up to six connections at once.
constexpr size_t kMostConnections = 64;
constexpr size_t kLongestRequest = 32 * 1024;
// The time limits for the request to arrive, for the client to read each part of the answer, and for the client to close the connection.
constexpr std::chrono::seconds kRequestLimit{5};
constexpr std::chrono::seconds kAnswerLimit{10};
constexpr std::chrono::seconds kCloseLimit{1};
constexpr int kPollMilliseconds = 50;
constexpr std::string_view kEndOfHeaders = "\r\n\r\n";

// The value of a header; empty if it is missing.
std::string_view header(std::string_view request, std::string_view name) {
  while (true) {
    const auto end = request.find("\r\n");
    if (end == request.npos) return "";
    request.remove_prefix(end + 2);
    const auto line = request.substr(0, request.find("\r\n"));
    const auto colon = std::min(line.find(':'), line.size());
    if (lower_case(line.substr(0, colon)) != lower_case(name)) continue;
    auto value = line.substr(std::min(colon + 1, line.size()));
    value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
    return value.substr(0, value.find_last_not_of(" \t") + 1);
  }
}

// The port is not compared, because it differs if the request comes through a tunnel from a user's computer.
bool names_this_computer(std::string_view request) {
  const auto host = header(request, "Host");
  const auto name = host.substr(0, host.find(':'));
  return name == kAddress || name == "localhost";
}

// `status`: "200 OK". `headers`: additional headers, each with its line break.
std::string make_answer(std::string_view status, std::string_view type, std::string_view body, std::string_view headers = "") {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\nX-Frame-Options: DENY\r\n"
      "Referrer-Policy: no-referrer\r\n{}\r\n{}",
      status, type, body.size(), headers, body);
}

std::string refuse(std::string_view status, std::string_view reason) {
  return make_answer(status, "text/plain; charset=utf-8", fmt::format("{}\n", reason));
}

}  // namespace

struct LiveServer::Connection {
  Descriptor socket;
  Clock::time_point deadline = Clock::now() + kRequestLimit;
  std::string request = {};  // the part that has arrived
  std::string answer = {};   // empty until the request is complete
  size_t num_sent = 0;       // of the answer
};

LiveServer::LiveServer(int port, LiveContent content)
    : content_(std::move(content)),
      path_('/' + random_token() + '/'),
      listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  // Without this option, bind() fails while connections of an earlier server are still closing.
  const int yes = 1;
  ::setsockopt(listener_.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(listener_.number(), any, size) != 0 || ::listen(listener_.number(), SOMAXCONN) != 0 ||
      ::getsockname(listener_.number(), any, &size) != 0) {
    throw UsageError(
        fmt::format("--port {}: another program uses this port, or this user may not use it; choose another one, or omit --port", port));
  }
  port_ = ntohs(address.sin_port);
}

LiveServer::~LiveServer() = default;

void LiveServer::serve(const std::function<bool()>& should_stop) {
  while (!should_stop()) {
    std::vector<pollfd> wanted = {{listener_.number(), POLLIN, 0}};
    for (const auto& connection : connections_) {
      const bool sends = connection.num_sent < connection.answer.size();
      wanted.push_back({connection.socket.number(), static_cast<short>(sends ? POLLOUT : POLLIN), 0});
    }
    ::poll(wanted.data(), wanted.size(), kPollMilliseconds);
    accept_connections();
    for (auto& connection : connections_) advance(connection);
    connections_.remove_if([](const Connection& connection) { return connection.socket.number() < 0; });
  }
  connections_.clear();
}

void LiveServer::accept_connections() {
  while (true) {
    Descriptor socket(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.number() < 0) return;
    connections_.push_back({.socket = std::move(socket)});
    if (connections_.size() > kMostConnections) connections_.pop_front();
  }
}

void LiveServer::advance(Connection& connection) const {
  if (connection.num_sent == connection.answer.size()) receive(connection);
  while (connection.num_sent < connection.answer.size()) {
    const auto rest = std::string_view(connection.answer).substr(connection.num_sent);
    const auto length = ::send(connection.socket.number(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return connection.socket.close();
    connection.num_sent += static_cast<size_t>(length);
    connection.deadline = Clock::now() + kAnswerLimit;
    if (connection.num_sent < connection.answer.size()) continue;
    // Closing the socket at once could discard the answer if the client is still sending.
    ::shutdown(connection.socket.number(), SHUT_WR);
    connection.deadline = Clock::now() + kCloseLimit;
  }
  if (Clock::now() > connection.deadline) connection.socket.close();
}

void LiveServer::receive(Connection& connection) const {
  std::array<char, 4096> buffer;
  const auto length = ::recv(connection.socket.number(), buffer.data(), buffer.size(), 0);
  if (length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (length <= 0) return connection.socket.close();
  if (!connection.answer.empty()) return;
  auto& request = connection.request;
  request.append(buffer.data(), static_cast<size_t>(length));
  if (request.find(kEndOfHeaders) != std::string::npos) {
    connection.answer = answer(request);
  } else if (request.size() > kLongestRequest) {
    connection.answer = refuse("431 Request Header Fields Too Large", "the request is too long");
  }
}

std::string LiveServer::answer(const std::string& request) const {
  const auto line = std::string_view(request).substr(0, request.find("\r\n"));
  const auto target = line.substr(std::min(line.find(' ') + 1, line.size()));
  const auto path = target.substr(0, target.find(' '));
  if (!names_this_computer(request))
    return refuse("403 Forbidden", "only requests to 127.0.0.1 or localhost are answered; from another computer, use a tunnel (ssh -L)");
  if (!path.starts_with(path_)) return refuse("403 Forbidden", "open the complete address that trainer report printed");
  if (!line.starts_with("GET ")) return refuse("405 Method Not Allowed", "only GET requests are answered");
  try {
    if (path == path_) return make_answer("200 OK", "text/html; charset=utf-8", content_.page());
    if (path != path_ + "data") return refuse("404 Not Found", "this address does not exist; open the one that trainer report printed");
    const auto tag = '"' + content_.version() + '"';
    const auto headers = fmt::format("ETag: {}\r\n", tag);
    const auto* type = "application/json";
    if (header(request, "If-None-Match") == tag) return make_answer("304 Not Modified", type, "", headers);
    return make_answer("200 OK", type, content_.data(), headers);
  } catch (const std::exception& error) {
    return refuse("500 Internal Server Error", error.what());
  }
}

}  // namespace trainer::report
