#pragma once
// What the names that a pickle program may use do when they are called.

#include <stdexcept>
#include <string_view>

#include "checkpoint/pickle_objects.h"

namespace trainer::checkpoint {

// What is wrong in a program; who runs it knows where.
class PickleError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws PickleError for a name that is not allowed.
Global find_global(std::string_view module, std::string_view name);

// The object that `function` makes of `arguments`, which have to be a tuple. Throws PickleError.
ObjectId call(Objects& objects, Budget& budget, ObjectId function, ObjectId arguments);

}  // namespace trainer::checkpoint
