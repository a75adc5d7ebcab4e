#pragma once
// The functions and classes that a pickle program may use, and what calling them does.

#include <stdexcept>
#include <string_view>

#include "checkpoint/pickle_objects.h"

namespace trainer::checkpoint {

// States what is wrong in a pickle program, but not where: the caller that runs the program adds that.
class PickleError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A pickle program of which the end is missing.
class PickleEndError : public PickleError {
 public:
  using PickleError::PickleError;
};

// Throws PickleError for a name that is not allowed.
Global find_global(std::string_view module, std::string_view name);

// Calls `function` with `arguments`, which must be a tuple, and returns the resulting object. Throws PickleError.
ObjectId call(Objects& objects, Budget& budget, ObjectId function, ObjectId arguments);

// Accepts what torch.save sets beside an object's content, which is not needed: an OrderedDict's attributes (such as a state_dict's
// _metadata), and whether a parameter requires gradients. Throws PickleError for anything else.
void set_state(Objects& objects, Budget& budget, ObjectId object, ObjectId state);

}  // namespace trainer::checkpoint
