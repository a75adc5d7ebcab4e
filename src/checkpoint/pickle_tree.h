#pragma once
// Converts the result of a pickle program to a tree.

#include "checkpoint/pickle_objects.h"
#include "state/tree.h"

namespace trainer::checkpoint {

// Throws PickleError for what a tree cannot represent: an object that contains itself, a function, two equal keys.
state::Tree to_tree(const Objects& objects, ObjectId id, Budget& budget);

}  // namespace trainer::checkpoint
