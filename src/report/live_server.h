#pragma once
// Serves the page of a running training to browsers of this computer.

#include <functional>
#include <memory>
#include <string>

namespace trainer::report {

struct LiveContent {
  std::function<std::string()> version;  // changes when the data does
  std::function<std::string()> page;     // HTML
  std::function<std::string()> data;     // JSON
};

// Listens on 127.0.0.1 from its construction on. Answers only requests for the page ("/") and its data ("/data"), and only those that name
// this computer as their host: a page of another site, whose name an attacker lets point to 127.0.0.1, cannot read them. `content` is
// called by one thread at a time.
class LiveServer {
 public:
  // `port` 0: a free one. Throws UsageError if the port is taken.
  LiveServer(int port, LiveContent content);
  ~LiveServer();
  LiveServer(const LiveServer&) = delete;
  LiveServer& operator=(const LiveServer&) = delete;

  int port() const;
  // Answers requests until `should_stop` returns true; it is called several times a second.
  void serve(const std::function<bool()>& should_stop);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainer::report
