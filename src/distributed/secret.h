#pragma once
// What the ranks of a run know and strangers do not, and the store whose values it protects.

#include <c10/util/intrusive_ptr.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "base/log.h"
#include "launch/world/rank_env.h"

namespace trainer::distributed {

// The secret of distributed.secret_file: the file's text without white space at its ends. Logs a warning if other users may read the file.
// Throws UsageError if it is no regular file, cannot be read, is longer than 4 KiB, or has fewer than 16 characters.
world::RunSecret read_secret_file(const std::filesystem::path& file, Logger& logger);

// For messages: "distributed.secret_file", "torchrun's run id (TORCHELASTIC_RUN_ID)".
std::string describe(world::RunSecret::Source source);

// Ranks with different secrets do not find each other's values. So that they are told why, each says in clear which kind of secret it has.
// A stranger can say anything there, so it only explains why ranks have not met.
class SecretCheck {
 public:
  // `open_store`: that all ranks read, whatever their secret.
  SecretCheck(c10::intrusive_ptr<c10d::Store> open_store, world::RunSecret::Source own, int rank);

  // On rank 0, once its first value is in the sealed store.
  void announce();
  // On another rank that waits for rank 0: how their secrets differ, if rank 0 has announced itself, but `sealed_store` has no valid value
  // under `key_of_rank0`; else empty.
  std::string find_difference(c10d::Store& sealed_store, const std::string& key_of_rank0);
  // On rank 0: logs a warning about those of the missing ranks that have found a difference.
  void report(const std::vector<int>& missing, Logger& logger);

 private:
  c10::intrusive_ptr<c10d::Store> open_store_;
  world::RunSecret::Source own_;
  int rank_;
};

// Encrypts values for others who know the same secret, and shows when a value is read that one of them has written it, under this very key
// (AES-256-GCM; its key is an HMAC-SHA-256 of the secret). Thread-safe.
class Seal {
 public:
  explicit Seal(std::string_view secret);

  // 32 hexadecimal digits, the same for everyone with this secret. The secret cannot be computed from them, but a guess can be checked.
  const std::string& name() const { return name_; }
  // 28 bytes longer than `value`, and different each time.
  std::vector<uint8_t> close(std::string_view key, const std::vector<uint8_t>& value) const;
  // Empty if the value was not sealed with this secret under this key.
  std::optional<std::vector<uint8_t>> open(std::string_view key, const std::vector<uint8_t>& sealed) const;

 private:
  std::array<uint8_t, 32> cipher_key_;
  std::string name_;
};

// A store in which only ranks that know the run's secret can read and write values. The others cannot guess its keys, and what they write
// under them is ignored: a value that is not sealed counts as missing, so that reading it waits for a valid one, but multiGet() returns the
// valid one that was read or compared before, and compareSet() replaces it. Not protected: the counters of add(), which the store itself
// has to understand, and the existence of keys, which anyone may list and delete; a value of the same key may be written again (replayed).
class SealedStore final : public c10d::Store {
 public:
  // Called on any thread, with the key of a value that is not valid, and how often such values were read by this object and all its
  // clones: the first time, the 10th, the 100th, …
  using OnForeign = std::function<void(const std::string& key, int64_t count)>;

  // `prefix` is put before each key and sealed with it.
  SealedStore(c10::intrusive_ptr<c10d::Store> store, std::string prefix, std::shared_ptr<const Seal> seal, OnForeign on_foreign);

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> get(const std::string& key) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  const std::chrono::milliseconds& getTimeout() const noexcept override;
  void setTimeout(const std::chrono::milliseconds& timeout) override;

 private:
  using Bytes = std::vector<uint8_t>;
  struct Foreign {
    explicit Foreign(OnForeign on_foreign) : report(std::move(on_foreign)) {}

    OnForeign report;
    std::atomic<int64_t> count = 0;

    void add(const std::string& key);
  };
  SealedStore(c10::intrusive_ptr<c10d::Store> store, std::string prefix, std::shared_ptr<const Seal> seal,
              std::shared_ptr<Foreign> foreign);

  std::string full(const std::string& key) const { return prefix_ + "/" + key; }
  std::optional<Bytes> open(const std::string& key, const Bytes& sealed);
  std::optional<Bytes> read(const std::string& key);
  Bytes remember(const std::string& key, Bytes value);

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string prefix_;
  const std::shared_ptr<const Seal> seal_;
  const std::shared_ptr<Foreign> foreign_;
  std::mutex mutex_;
  // The last valid values of the keys that are read repeatedly. A single read is not kept, because its value may be large.
  std::map<std::string, Bytes> last_values_;
};

}  // namespace trainer::distributed
