#pragma once

#include <string>
#include <vector>

namespace trainer::task {

// Test-time augmentation: over which views of each image outputs are averaged (views.h).
enum class TestTimeAugmentation { kNone, kFlip, kFlipAndShift };

// What a run can choose its best checkpoint by.
struct MonitorChoices {
  std::vector<std::string> names;  // "validation/top1" and so on
  std::string default_doc;         // what it is chosen by if nothing is set
};

}  // namespace trainer::task
