#pragma once
// The page of `trainer report`: one HTML text that refers to nothing outside of it.

#include <string>

#include "history/run_record.h"

namespace trainer::report {

// `data`: from make_data(). No text in it can become markup or script.
std::string make_page(const history::Json& data);

}  // namespace trainer::report
