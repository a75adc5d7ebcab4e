#pragma once
// How the values of an enum are spelled in an experiment file.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace trainer {

template <class E>
using Choices = std::vector<std::pair<std::string, E>>;

template <class E>
const std::string& spelling_of(E value, const Choices<E>& choices) {
  return std::ranges::find(choices, value, &std::pair<std::string, E>::second)->first;
}

}  // namespace trainer
