#pragma once

#include <cstddef>

#include "history/run_record.h"

namespace trainer::report {

// At most about `max_points` of the points: the first, the last, and the least and the greatest value of each of equally long parts, so
// that no peak is lost. Of NaNs only those of a part that has no other values stay.
history::Series shortened(const history::Series& series, size_t max_points);

}  // namespace trainer::report
