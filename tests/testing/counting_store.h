#pragma once
// A store that counts its messages.

#include <atomic>
#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace trainer::testing {

// Forwards all calls to another store. Its clones do the same and share the counter.
class CountingStore : public c10d::Store {
 public:
  using Counter = std::shared_ptr<std::atomic<int64_t>>;

  CountingStore(c10::intrusive_ptr<c10d::Store> store, Counter num_messages)
      : store_(std::move(store)), num_messages_(std::move(num_messages)) {}

  // Counts the messages that a TCPStore would send: two for each get, because it first waits for the keys by a separate message.
  c10::intrusive_ptr<c10d::Store> clone() override { return c10::make_intrusive<CountingStore>(store_, num_messages_); }
  void set(const std::string& key, const std::vector<uint8_t>& value) override { count(1).set(key, value); }
  std::vector<uint8_t> get(const std::string& key) override { return count(2).get(key); }
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override { return count(2).multiGet(keys); }
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override {
    return count(1).compareSet(key, expected, desired);
  }
  int64_t add(const std::string& key, int64_t value) override { return count(1).add(key, value); }
  bool deleteKey(const std::string& key) override { return count(1).deleteKey(key); }
  bool check(const std::vector<std::string>& keys) override { return count(1).check(keys); }
  int64_t getNumKeys() override { return count(1).getNumKeys(); }
  void wait(const std::vector<std::string>& keys) override { count(1).wait(keys); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override { count(1).wait(keys, timeout); }

 private:
  c10d::Store& count(int64_t num_messages) {
    *num_messages_ += num_messages;
    return *store_;
  }

  c10::intrusive_ptr<c10d::Store> store_;
  Counter num_messages_;
};

}  // namespace trainer::testing
