#include "checkpoint/pickle_objects.h"

namespace trainer::checkpoint {

const char* describe(const Object& object) {
  constexpr const char* kNames[] = {"None",      "a boolean", "an integer", "a number", "a string",    "a function or type",
                                    "a storage", "a tensor",  "a tuple",    "a list",   "a dictionary"};
  return kNames[object.index()];
}

Objects::Objects(Budget& budget) : budget_(budget) {
  add({});
  add(false);
  add(true);
  add(Tuple{});
}

ObjectId Objects::add(Object object) {
  budget_.take(sizeof(Object));
  objects_.push_back(std::move(object));
  return static_cast<ObjectId>(objects_.size() - 1);
}

ObjectId Objects::add_text(const std::string& text) {
  budget_.take(sizeof(std::string) + text.size());
  return add(std::string_view(texts_.emplace_back(text)));
}

}  // namespace trainer::checkpoint
