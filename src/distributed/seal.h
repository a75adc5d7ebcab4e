#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainer::distributed {

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

}  // namespace trainer::distributed
