#pragma once

namespace trainer::task {

// Test-time augmentation: over which views of each image outputs are averaged (views.h).
enum class TestTimeAugmentation { kNone, kFlip, kFlipAndShift };

}  // namespace trainer::task
