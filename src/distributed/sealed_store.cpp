#include "distributed/sealed_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "trainer/error.h"

namespace trainer::distributed {
namespace {

using std::chrono::milliseconds;

// Until a value that is not valid is read again.
constexpr milliseconds kReadAgain{20};

}  // namespace

SealedStore::SealedStore(c10::intrusive_ptr<c10d::Store> store, std::string prefix, std::shared_ptr<const Seal> seal, OnForeign on_foreign)
    : SealedStore(std::move(store), std::move(prefix), std::move(seal), std::make_shared<Foreign>(std::move(on_foreign))) {}

SealedStore::SealedStore(c10::intrusive_ptr<c10d::Store> store, std::string prefix, std::shared_ptr<const Seal> seal,
                         std::shared_ptr<Foreign> foreign)
    : store_(std::move(store)), prefix_(std::move(prefix)), seal_(std::move(seal)), foreign_(std::move(foreign)) {}

c10::intrusive_ptr<c10d::Store> SealedStore::clone() {
  return c10::intrusive_ptr<SealedStore>::unsafe_steal_from_new(new SealedStore(store_->clone(), prefix_, seal_, foreign_));
}

void SealedStore::set(const std::string& key, const Bytes& value) { store_->set(full(key), seal_->close(full(key), value)); }

SealedStore::Bytes SealedStore::get(const std::string& key) {
  const auto deadline = std::chrono::steady_clock::now() + getTimeout();
  while (true) {
    if (auto value = read(key)) return *std::move(value);
    if (std::chrono::steady_clock::now() >= deadline) C10_THROW_ERROR(DistStoreError, "wait timeout, keys: " + full(key));
    std::this_thread::sleep_for(kReadAgain);
  }
}

std::vector<SealedStore::Bytes> SealedStore::multiGet(const std::vector<std::string>& keys) {
  std::vector<std::string> full_keys;
  for (const auto& key : keys) full_keys.push_back(full(key));
  auto values = store_->multiGet(full_keys);
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
  const auto sealed = seal_->close(full(key), desired);
  Bytes current;
  if (!expected.empty()) {
    if (!store_->check({full(key)})) return expected;
    current = store_->get(full(key));
    const auto value = open(key, current);
    if (value && *value != expected) return remember(key, *value);
  }
  while (true) {
    auto found = store_->compareSet(full(key), current, sealed);
    if (found == sealed) return remember(key, desired);
    if (auto value = open(key, found)) return remember(key, *std::move(value));
    current = std::move(found);
  }
}

int64_t SealedStore::add(const std::string& key, int64_t value) { return store_->add(full(key), value); }

bool SealedStore::deleteKey(const std::string& key) { return store_->deleteKey(full(key)); }

bool SealedStore::check(const std::vector<std::string>& keys) {
  return std::ranges::all_of(keys, [&](const std::string& key) { return store_->check({full(key)}) && read(key); });
}

int64_t SealedStore::getNumKeys() { return store_->getNumKeys(); }

void SealedStore::wait(const std::vector<std::string>& keys) { wait(keys, getTimeout()); }

void SealedStore::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (const auto& key : keys) {
    while (true) {
      const auto remaining = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
      // 0 would mean without limit.
      store_->wait({full(key)}, std::max(remaining, milliseconds(1)));
      if (read(key)) break;
      if (remaining <= kReadAgain) C10_THROW_ERROR(DistStoreError, "wait timeout, keys: " + full(key));
      std::this_thread::sleep_for(kReadAgain);
    }
  }
}

const milliseconds& SealedStore::getTimeout() const noexcept { return store_->getTimeout(); }

void SealedStore::setTimeout(const milliseconds& timeout) { store_->setTimeout(timeout); }

void SealedStore::Foreign::add(const std::string& key) {
  const auto number = ++count;
  auto rest = number;
  while (rest % 10 == 0) rest /= 10;
  if (rest == 1) report(key, number);
}

std::optional<SealedStore::Bytes> SealedStore::open(const std::string& key, const Bytes& sealed) {
  auto value = seal_->open(full(key), sealed);
  if (!value) foreign_->add(key);
  return value;
}

std::optional<SealedStore::Bytes> SealedStore::read(const std::string& key) { return open(key, store_->get(full(key))); }

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
