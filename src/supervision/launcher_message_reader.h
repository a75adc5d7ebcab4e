#pragma once

#include <functional>
#include <string>
#include <thread>

#include "launch/launcher_messages.h"

namespace trainer::supervision {

// During its lifetime, calls `receive` on a separate thread with each message that the launcher sends on `descriptor`.
class LauncherMessageReader {
 public:
  LauncherMessageReader(int descriptor, std::function<void(const launch::LauncherMessage&)> receive);
  ~LauncherMessageReader();
  LauncherMessageReader(const LauncherMessageReader&) = delete;
  LauncherMessageReader& operator=(const LauncherMessageReader&) = delete;

 private:
  void read_all(int descriptor, const std::function<void(const launch::LauncherMessage&)>& receive) const;

  int wake_up_;  // an eventfd
  std::thread thread_;
};

}  // namespace trainer::supervision
