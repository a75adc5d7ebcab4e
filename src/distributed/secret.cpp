#include "distributed/secret.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/file.h"
#include "distributed/stores.h"
#include "trainer/error.h"

namespace trainer::distributed {
namespace {

constexpr size_t kShortest = 16;
constexpr size_t kLongest = 4096;
constexpr std::string_view kWhiteSpace = " \t\r\n";
constexpr const char* kFix =
    "; start all ranks in the same way, either all with the same content of distributed.secret_file or all without it";

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& reason) {
  throw UsageError(
      fmt::format("distributed.secret_file {}: {}; as this user, create the file on one host (umask 077; head -c 32 /dev/urandom | base64 "
                  "> FILE) and copy it to the others",
                  file.string(), reason));
}

}  // namespace

world::RunSecret read_secret_file(const std::filesystem::path& file, Logger& logger) {
  std::vector<uint8_t> buffer;
  std::string text;
  try {
    const auto bytes = read_bytes(file.string(), buffer);
    text.assign(bytes.begin(), bytes.end());
  } catch (const std::runtime_error& reason) {
    refuse(file, reason.what());
  }
  if (text.size() > kLongest) refuse(file, fmt::format("the file is longer than {} bytes", kLongest));
  text.erase(std::min(text.size(), text.find_last_not_of(kWhiteSpace) + 1));
  text.erase(0, std::min(text.size(), text.find_first_not_of(kWhiteSpace)));
  if (text.size() < kShortest) refuse(file, fmt::format("the secret has fewer than {} characters, so it could be guessed", kShortest));
  struct stat status {};
  if (stat(file.c_str(), &status) == 0 && (status.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    logger.warn("distributed.secret_file {} can be read by other users of this host; run chmod 600 on it", file.string());
  }
  return {world::RunSecret::Source::kFile, std::move(text)};
}

namespace {

using Source = world::RunSecret::Source;

// By Source.
constexpr const char* kKinds[] = {"no secret", "the secret of `trainer launch`", "torchrun's run id (TORCHELASTIC_RUN_ID)",
                                  "Slurm's job id (SLURM_JOB_ID)", "distributed.secret_file"};

}  // namespace

std::string describe(Source source) { return kKinds[static_cast<size_t>(source)]; }

namespace {

std::string kind_key(int rank) { return fmt::format("secret/{}", rank); }

// Returns nullopt if the value does not name a kind of secret.
std::optional<Source> read_kind(c10d::Store& store, int rank) {
  const auto bytes = store.get(kind_key(rank));
  const std::string text(bytes.begin(), bytes.end());
  const auto* kind = std::ranges::find(kKinds, text);
  return kind == std::end(kKinds) ? std::nullopt : std::optional(static_cast<Source>(kind - kKinds));
}

void write_kind(c10d::Store& store, int rank, Source source) {
  const auto text = describe(source);
  store.set(kind_key(rank), std::vector<uint8_t>(text.begin(), text.end()));
}

std::string describe_difference(int rank, Source own, std::optional<Source> of_rank0) {
  if (of_rank0 == own) return fmt::format("rank {} and rank 0 have different secrets ({} differs)", rank, describe(own));
  return fmt::format("rank {} has {}, but rank 0 has {}", rank, describe(own), of_rank0 ? describe(*of_rank0) : "another secret");
}

}  // namespace

SecretCheck::SecretCheck(c10::intrusive_ptr<c10d::Store> open_store, Source own, int rank)
    : open_store_(std::move(open_store)), own_(own), rank_(rank) {}

void SecretCheck::announce() { write_kind(*open_store_, 0, own_); }

std::string SecretCheck::find_difference(c10d::Store& sealed_store, const std::string& key_of_rank0) {
  if (!open_store_->check({kind_key(0)}) || sealed_store.check({key_of_rank0})) return "";
  write_kind(*open_store_, rank_, own_);
  return describe_difference(rank_, own_, read_kind(*open_store_, 0)) + kFix;
}

void SecretCheck::report(const std::vector<int>& missing, Logger& logger) {
  for (const int rank : missing) {
    if (!open_store_->check({kind_key(rank)})) continue;
    const auto kind = read_kind(*open_store_, rank);
    logger.warn("{}, so they cannot connect{}", describe_difference(rank, kind.value_or(Source::kNone), own_), kFix);
  }
}

namespace {

using std::chrono::milliseconds;

// The interval between reads while a value is not valid.
constexpr milliseconds kReadAgain{20};

}  // namespace

c10::intrusive_ptr<c10d::Store> SealedStore::clone() {
  auto clone = c10::make_intrusive<SealedStore>(store_->clone(), prefix_, seal_, on_foreign_);
  clone->reported_ = reported_;
  return clone;
}

void SealedStore::set(const std::string& key, const Bytes& value) { PrefixStore::set(key, seal_->close(joinKey(key), value)); }

SealedStore::Bytes SealedStore::get(const std::string& key) {
  const auto deadline = std::chrono::steady_clock::now() + getTimeout();
  while (true) {
    if (auto value = read(key)) return *std::move(value);
    if (std::chrono::steady_clock::now() >= deadline) C10_THROW_ERROR(DistStoreError, "wait timeout, keys: " + joinKey(key));
    std::this_thread::sleep_for(kReadAgain);
  }
}

std::vector<SealedStore::Bytes> SealedStore::multiGet(const std::vector<std::string>& keys) {
  auto values = PrefixStore::multiGet(keys);
  for (size_t i = 0; i < keys.size(); ++i) {
    auto value = open(keys[i], values[i]);
    if (!value) {
      const std::lock_guard lock(mutex_);
      if (const auto last = last_values_.find(keys[i]); last != last_values_.end()) value = last->second;
    }
    values[i] = remember(keys[i], value ? *std::move(value) : get(keys[i]));
  }
  return values;
}

SealedStore::Bytes SealedStore::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
  const auto sealed = seal_->close(joinKey(key), desired);
  Bytes current;
  if (!expected.empty()) {
    if (!PrefixStore::check({key})) return expected;
    current = PrefixStore::get(key);
    const auto value = open(key, current);
    if (value && *value != expected) return remember(key, *value);
  }
  while (true) {
    auto found = PrefixStore::compareSet(key, current, sealed);
    if (found == sealed) return remember(key, desired);
    if (auto value = open(key, found)) return remember(key, *std::move(value));
    current = std::move(found);
  }
}

bool SealedStore::check(const std::vector<std::string>& keys) {
  return std::ranges::all_of(keys, [&](const std::string& key) { return PrefixStore::check({key}) && read(key); });
}

void SealedStore::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (const auto& key : keys) {
    while (true) {
      const auto remaining = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
      // A timeout of 0 would mean no limit.
      PrefixStore::wait({key}, std::max(remaining, milliseconds(1)));
      if (read(key)) break;
      if (remaining <= kReadAgain) C10_THROW_ERROR(DistStoreError, "wait timeout, keys: " + joinKey(key));
      std::this_thread::sleep_for(kReadAgain);
    }
  }
}

std::optional<SealedStore::Bytes> SealedStore::open(const std::string& key, const Bytes& sealed) {
  auto value = seal_->open(joinKey(key), sealed);
  if (!value) std::call_once(*reported_, on_foreign_, key);
  return value;
}

SealedStore::Bytes SealedStore::remember(const std::string& key, Bytes value) {
  const std::lock_guard lock(mutex_);
  return last_values_[key] = std::move(value);
}

namespace {

// A sealed value: nonce, encrypted value, tag.
constexpr size_t kNonceSize = 12;
constexpr size_t kTagSize = 16;
constexpr size_t kNameSize = 16;

using Hash = std::array<uint8_t, 32>;
using Context = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

void require(bool has_worked) {
  if (!has_worked) throw Error("OpenSSL's libcrypto cannot encrypt with AES-256-GCM; check its installation");
}

Hash derive(std::string_view secret, std::string_view purpose) {
  Hash hash;
  unsigned size = 0;
  require(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), reinterpret_cast<const uint8_t*>(purpose.data()),
               purpose.size(), hash.data(), &size) != nullptr &&
          size == hash.size());
  return hash;
}

Context make_context() { return {EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free}; }

const uint8_t* bytes_of(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

}  // namespace

Seal::Seal(std::string_view secret) : cipher_key_(derive(secret, "trainer: cipher key")) {
  const auto hash = derive(secret, "trainer: name");
  name_ = fmt::format("{:02x}", fmt::join(std::span(hash).first(kNameSize), ""));
}

std::vector<uint8_t> Seal::close(std::string_view key, const std::vector<uint8_t>& value) const {
  std::vector<uint8_t> sealed(kNonceSize + value.size() + kTagSize);
  auto* const nonce = sealed.data();
  auto* const encrypted = nonce + kNonceSize;
  const auto context = make_context();
  int size = 0;
  require(context && RAND_bytes(nonce, kNonceSize) == 1 &&
          EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, cipher_key_.data(), nonce) == 1 &&
          EVP_EncryptUpdate(context.get(), nullptr, &size, bytes_of(key), static_cast<int>(key.size())) == 1 &&
          EVP_EncryptUpdate(context.get(), encrypted, &size, value.data(), static_cast<int>(value.size())) == 1 &&
          EVP_EncryptFinal_ex(context.get(), encrypted + size, &size) == 1 &&
          EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, kTagSize, encrypted + value.size()) == 1);
  return sealed;
}

std::optional<std::vector<uint8_t>> Seal::open(std::string_view key, const std::vector<uint8_t>& sealed) const {
  if (sealed.size() < kNonceSize + kTagSize) return std::nullopt;
  std::vector<uint8_t> value(sealed.size() - kNonceSize - kTagSize);
  const auto* const nonce = sealed.data();
  const auto* const encrypted = nonce + kNonceSize;
  std::array<uint8_t, kTagSize> tag;
  std::copy_n(encrypted + value.size(), kTagSize, tag.begin());
  const auto context = make_context();
  int size = 0;
  require(context && EVP_DecryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, cipher_key_.data(), nonce) == 1 &&
          EVP_DecryptUpdate(context.get(), nullptr, &size, bytes_of(key), static_cast<int>(key.size())) == 1 &&
          EVP_DecryptUpdate(context.get(), value.data(), &size, encrypted, static_cast<int>(value.size())) == 1 &&
          EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, kTagSize, tag.data()) == 1);
  if (EVP_DecryptFinal_ex(context.get(), value.data() + size, &size) != 1) return std::nullopt;
  return value;
}

}  // namespace trainer::distributed
