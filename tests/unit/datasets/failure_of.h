#pragma once

#include <gtest/gtest.h>

#include <string>

#include "datasets/dataset_registry.h"
#include "trainer/error.h"

namespace trainer::datasets::test {

// The text of the DataError that opening the split throws.
inline std::string failure_of(const data::DatasetFactory& factory, data::Split split) {
  try {
    factory.open(split, *make_quiet_logger());
  } catch (const DataError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no DataError";
  return "";
}

}  // namespace trainer::datasets::test
