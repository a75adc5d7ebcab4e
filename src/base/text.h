#pragma once
// Text for people: durations, sizes, counts, and the nearest of several names.

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

std::string format_duration(std::chrono::duration<double> duration);  // "8.3s", "3m12s", "2h05m"
std::string format_bytes(uint64_t bytes);                             // "512 B", "1.2 GiB"
// Only letters of ASCII become small ones.
std::string lower_case(std::string_view text);
// A number with an exponent gets a fraction, "1.0e-05", without which YAML 1.1 (PyYAML) reads text; what is no number stays as it is.
std::string portable_number(std::string text);
std::string join(std::span<const std::string> parts, std::string_view separator);

// The candidate that `text` was most likely meant to be: one that is a few edits away, or the initials of the words of `text` ("lr" for
// "learning_rate"); empty if there is none.
std::string nearest_name(std::string_view text, std::span<const std::string> candidates);

}  // namespace trainer
