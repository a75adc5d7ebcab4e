/* Classifies image files: predict CHECKPOINT IMAGE... */
#include <stdio.h>
#include <stdlib.h>
#include <trainer/predict.h>

int main(int argc, char** argv) {
  char error[1000];
  trainer_predictor* predictor = argc < 2 ? NULL : trainer_predict_open(argv[1], NULL, 0, error, sizeof error);
  if (predictor == NULL) return fprintf(stderr, "%s\n", argc < 2 ? "predict CHECKPOINT IMAGE..." : error), 1;
  const int64_t num_classes = trainer_predict_num_classes(predictor);
  double* probabilities = malloc(num_classes * sizeof *probabilities);
  for (int i = 2; i < argc; ++i) {
    if (trainer_predict_file(predictor, argv[i], probabilities, NULL, error, sizeof error) != 0) return fprintf(stderr, "%s\n", error), 1;
    int64_t best = 0;
    for (int64_t label = 1; label < num_classes; ++label) best = probabilities[label] > probabilities[best] ? label : best;
    printf("%s  %s  %.17g\n", argv[i], trainer_predict_class_name(predictor, best), probabilities[best]);
  }
  free(probabilities);
  trainer_predict_close(predictor);
  return 0;
}
