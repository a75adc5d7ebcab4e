#include "distributed/seal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <memory>
#include <span>

#include "trainer/error.h"

namespace trainer::distributed {
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
