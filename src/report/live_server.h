#pragma once
// Serves the page of a running training to browsers on this computer.

#include <functional>
#include <list>
#include <string>

#include "base/file.h"

namespace trainer::report {

struct LiveContent {
  std::function<std::string()> version;  // changes when the data does
  std::function<std::string()> page;     // HTML
  std::function<std::string()> data;     // JSON
};

// Listens on 127.0.0.1 once constructed. Because all users of this computer can reach that address, it answers only requests for
// the page (path()) and its data (path() + "data"), whose addresses begin with a random token. Against DNS rebinding, it answers only
// requests whose header Host names this computer. A client that is slow or sends without end does not delay others and is disconnected.
class LiveServer {
 public:
  // `port` 0: a free one. Throws UsageError if the port is taken or may not be used.
  LiveServer(int port, LiveContent content);
  ~LiveServer();
  LiveServer(const LiveServer&) = delete;
  LiveServer& operator=(const LiveServer&) = delete;

  int port() const { return port_; }
  // "/TOKEN/"
  const std::string& path() const { return path_; }
  // Answers requests on the calling thread until `should_stop`, which is called several times per second, returns true.
  void serve(const std::function<bool()>& should_stop);

 private:
  struct Connection;
  void accept_connections();
  // Reads and writes what is possible without waiting.
  void advance(Connection& connection) const;
  void receive(Connection& connection) const;
  // The complete answer to a complete request.
  std::string answer(const std::string& request) const;

  LiveContent content_;
  std::string path_;
  Descriptor listener_;
  int port_ = 0;
  std::list<Connection> connections_;  // the oldest first
};

}  // namespace trainer::report
