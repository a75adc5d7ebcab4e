#pragma once
// What a pickle program has made, as a tree.

#include "checkpoint/pickle_objects.h"
#include "state/tree.h"

namespace trainer::checkpoint {

// Throws PickleError for what is no tree: an object that holds itself, a function, two equal keys.
state::Tree to_tree(const Objects& objects, ObjectId id, Budget& budget);

}  // namespace trainer::checkpoint
