#pragma once
// What the page of `trainer report` shows, as JSON; src/report/*.js read it.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "history/run_record.h"

namespace trainer::report {

// The pictures of wrongly classified samples.
struct Pictures {
  std::vector<std::string> data_urls = {};  // of each of the samples; empty: there is no picture of it
  std::vector<std::string> names = {};      // of their files, as many; empty: a sample has only its index
  std::string note = {};                    // why pictures are missing; empty: none is
};
// Called with a run and the indices of samples of its validation set. Does not throw.
using PictureReader = std::function<Pictures(const history::RunRecord& run, const std::vector<int64_t>& samples)>;

struct DataOptions {
  double now = 0;        // Unix seconds
  bool is_live = false;  // the page asks for newer data
  PictureReader read_pictures = {};
};

// Long series are shortened, so that the data of a few runs stays below 2 MB however long they are.
history::Json make_data(std::span<const history::RunRecord> runs, const DataOptions& options);

}  // namespace trainer::report
