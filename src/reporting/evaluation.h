#pragma once
// The result of an evaluation as one JSON object: the content of evaluation.json and the output of `trainer eval --json`
// (docs/evaluation.md).

#include <string>
#include <vector>

#include "reporting/values.h"
#include "trainer/events.h"

namespace trainer::reporting {

// A score is 0 if its denominator is 0, because the class has no samples or no predictions.
struct ClassScores {
  int64_t num_samples = 0;
  double recall = 0;     // of the samples of the class
  double precision = 0;  // of the samples that were predicted as the class
  double f1 = 0;
};

// The scores of each class, from a confusion matrix, row by row.
std::vector<ClassScores> scores_of_classes(const std::vector<int64_t>& confusion);

struct Evaluation {
  std::string split = "validation";
  ValidationEvent event = {};
  std::vector<std::string> output_names = {};  // of the classes, or of the numbers of a regression; empty: they have no names
};

// The number of classes of a confusion matrix.
size_t num_classes_of(const std::vector<int64_t>& confusion);

// The name of the class, or its number.
std::string name_of_class(const std::vector<std::string>& class_names, int64_t label);

Json to_json(const std::vector<CalibrationBin>& bins);

// Results of classes, labels or numbers are omitted if the evaluation has none. `with_confusion`: whether to include the matrix of
// confusion or co-occurrence.
Json to_json(const Evaluation& evaluation, bool with_confusion = true);

}  // namespace trainer::reporting
