#pragma once
// The secret that the ranks of a run share, and the store whose values it protects.

#include <c10/util/intrusive_ptr.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "base/log.h"
#include "launch/world/rank_env.h"

namespace trainer::distributed {

// The secret of distributed.secret_file: the file's text without white space at its ends. Logs a warning if other users may read the file.
// Throws UsageError.
world::RunSecret read_secret_file(const std::filesystem::path& file, Logger& logger);

// For messages: "distributed.secret_file", "torchrun's run id (TORCHELASTIC_RUN_ID)".
std::string describe(world::RunSecret::Source source);

// Ranks with different secrets cannot find each other's values. For messages only, because other programs can write it too, rank 0 and each
// rank that does not find rank 0's values publish unencrypted which kind of secret they have.
class SecretCheck {
 public:
  // `open_store`: a store that all ranks can read, whatever their secret.
  SecretCheck(c10::intrusive_ptr<c10d::Store> open_store, world::RunSecret::Source own, int rank);

  // Rank 0 calls this when its first value is in the sealed store.
  void announce();
  // Called by another rank while it waits for rank 0. How the secrets differ, if rank 0 has called announce() but `sealed_store` has no
  // valid value under `key_of_rank0`; else empty.
  std::string find_difference(c10d::Store& sealed_store, const std::string& key_of_rank0);
  // Called by rank 0. Logs a warning for each missing rank that has found a difference.
  void report(const std::vector<int>& missing, Logger& logger);

 private:
  c10::intrusive_ptr<c10d::Store> open_store_;
  world::RunSecret::Source own_;
  int rank_;
};

// Encrypts values with a shared secret and binds them to their store keys (AES-256-GCM with a key by HMAC-SHA-256). Thread-safe.
class Seal {
 public:
  explicit Seal(std::string_view secret);

  // 32 hexadecimal digits derived from the secret. The secret cannot be computed from them, but a guess can be verified.
  const std::string& name() const { return name_; }
  // The result is different in each call.
  std::vector<uint8_t> close(std::string_view key, const std::vector<uint8_t>& value) const;
  // Returns nullopt if the value was not sealed with this secret under this key.
  std::optional<std::vector<uint8_t>> open(std::string_view key, const std::vector<uint8_t>& sealed) const;

 private:
  std::array<uint8_t, 32> cipher_key_;
  std::string name_;
};

// A store in which only ranks that have the run's secret can read and write values. A value of another program counts as missing: get() and
// wait() wait for a sealed value, multiGet() returns the last sealed value that it or compareSet() has read, and compareSet() replaces the
// value. The counters of add(), the existence of keys and what the base class's other functions write are not protected, and an earlier
// value of a key can be replayed.
class SealedStore final : public c10d::PrefixStore {
 public:
  // Called once, on any thread, with the key of the first invalid value that this object or a clone reads.
  using OnForeign = std::function<void(const std::string& key)>;

  // `prefix` is prepended to each key and sealed with it.
  SealedStore(c10::intrusive_ptr<c10d::Store> store, std::string prefix, std::shared_ptr<const Seal> seal, OnForeign on_foreign)
      : PrefixStore(std::move(prefix), std::move(store)), seal_(std::move(seal)), on_foreign_(std::move(on_foreign)) {}

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> get(const std::string& key) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  using Bytes = std::vector<uint8_t>;

  std::optional<Bytes> open(const std::string& key, const Bytes& sealed);
  std::optional<Bytes> read(const std::string& key) { return open(key, PrefixStore::get(key)); }
  Bytes remember(const std::string& key, Bytes value);

  const std::shared_ptr<const Seal> seal_;
  const OnForeign on_foreign_;
  std::shared_ptr<std::once_flag> reported_ = std::make_shared<std::once_flag>();  // shared with clones
  std::mutex mutex_;
  // Of the keys that multiGet() and compareSet() have read; those of get() may be large.
  std::map<std::string, Bytes> last_values_;
};

}  // namespace trainer::distributed
