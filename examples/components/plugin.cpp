// The components of this folder as one plug-in.

#include <trainer/registry.h>

void add_worst_recall();
void add_best_file();
void add_blur_pool();
void add_poly_loss();
void add_random_shift();
void add_stripes();

TRAINER_PLUGIN() {
  add_worst_recall();
  add_best_file();
  add_blur_pool();
  add_poly_loss();
  add_random_shift();
  add_stripes();
}
