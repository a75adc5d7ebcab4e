// The components of this folder as one plug-in.

#include <trainer/registry.h>

void add_balanced_accuracy();
void add_best_file();
void add_blur_pool();
void add_focal();
void add_random_shift();
void add_stripes();

TRAINER_PLUGIN() {
  add_balanced_accuracy();
  add_best_file();
  add_blur_pool();
  add_focal();
  add_random_shift();
  add_stripes();
}
