#pragma once
// The records of a zip archive, for the reader and the writer (PKWARE's APPNOTE.TXT 6.3). Sizes are in bytes.

#include <cstddef>
#include <cstdint>

namespace trainer::checkpoint::zip {

inline constexpr uint32_t kLocalHeader = 0x04034b50;
inline constexpr uint32_t kDataDescriptor = 0x08074b50;
inline constexpr uint32_t kCentralHeader = 0x02014b50;
inline constexpr uint32_t kEnd = 0x06054b50;
inline constexpr uint32_t kEnd64 = 0x06064b50;
inline constexpr uint32_t kEnd64Locator = 0x07064b50;

inline constexpr size_t kLocalHeaderSize = 30;
inline constexpr size_t kCentralHeaderSize = 46;
inline constexpr size_t kEndSize = 22;
inline constexpr size_t kEnd64Size = 56;
inline constexpr size_t kEnd64LocatorSize = 20;

// A field with one of these values has its real value in a zip64 record.
inline constexpr uint32_t kIn64 = 0xffffffff;
inline constexpr uint16_t kCountIn64 = 0xffff;
inline constexpr uint16_t kExtra64 = 1;

inline constexpr uint16_t kEncryptedFlag = 1 << 0;
inline constexpr uint16_t kDescriptorFlag = 1 << 3;
inline constexpr uint16_t kUtf8Flag = 1 << 11;

}  // namespace trainer::checkpoint::zip
