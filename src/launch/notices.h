#pragma once
// What the launcher tells the processes that it has started about each other, which they could only guess from silence.

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace trainer::launch {

struct Notice {
  enum class Kind { kEnded, kStopped, kContinued };
  Kind kind = Kind::kEnded;
  int rank = 0;
  int64_t process = 0;
  std::string detail = {};  // of kEnded: "was killed by signal 9 (Killed)"
};

// One line, with its end.
std::string format_notice(const Notice& notice);
// From a line without its end. Throws std::invalid_argument.
Notice parse_notice(const std::string& line);

// Calls `hear` with each notice that comes on `descriptor`, on a thread of its own, as long as it lives.
class NoticeReader {
 public:
  NoticeReader(int descriptor, std::function<void(const Notice&)> hear);
  ~NoticeReader();
  NoticeReader(const NoticeReader&) = delete;
  NoticeReader& operator=(const NoticeReader&) = delete;

 private:
  void read_all(int descriptor, const std::function<void(const Notice&)>& hear) const;

  int wake_up_;  // an eventfd
  std::thread thread_;
};

}  // namespace trainer::launch
