#ifndef TRAINER_PREDICT_H
#define TRAINER_PREDICT_H
/* Predictions of the networks that trainer has trained, for programs in C and in every language that can call C (libtrainer_predict).
 *
 * Network, image decoder, transforms and precision are those of the program, so that on a CPU the probabilities are those of `trainer
 * predict` to the last bit, with as many threads (OMP_NUM_THREADS) on the same kind of processor. The part of trainer that trains is not
 * loaded.
 *
 * Functions that return int return 0 if they succeed, else another number; trainer_predict_open() returns null if it fails. A function that
 * fails writes one sentence in UTF-8 to `error`, which has room for `error_size` bytes with the null byte at the end; a longer sentence is
 * cut off. `error` may be null.
 *
 * Several threads may use a predictor at the same time. They decode images at the same time, and take turns in the network, which uses
 * several cores itself. There is no state outside of predictors; LibTorch's, such as its number of threads, is not changed. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trainer_predictor trainer_predictor;

/* The order of the bytes of a pixel; alpha is ignored, as Pillow's convert("RGB") does. A network for colours gets a grey pixel as a
 * colour, one for grey images gets a colour as Pillow's convert("L") makes it. */
enum { TRAINER_RGB = 0, TRAINER_BGR = 1, TRAINER_RGBA = 2, TRAINER_BGRA = 3, TRAINER_GREY = 4 };

typedef struct trainer_image {
  const uint8_t* pixels; /* of the first row */
  int32_t height;
  int32_t width;
  int64_t stride; /* bytes from a row to the next; 0: rows follow each other without a gap */
  int32_t order;  /* TRAINER_RGB ... */
} trainer_image;

/* Flags of trainer_predict_open(). */
enum { TRAINER_AVERAGED = 1 /* the averaged parameters, of a training with training.ema */ };

/* Opens a checkpoint that `trainer` has written. `device`: "cpu", "cuda", or null for that of its experiment, which is by default the GPU
 * where there is one. A process that uses a GPU has to open its first predictor there, before it uses LibTorch. `flags`: 0, or flags as
 * above. Release the predictor with trainer_predict_close(). */
trainer_predictor* trainer_predict_open(const char* checkpoint, const char* device, int flags, char* error, size_t error_size);

/* May be null. No other call may still use it. */
void trainer_predict_close(trainer_predictor* predictor);

/* What the network tells of an image. */
enum {
  TRAINER_ONE_CLASS = 0,   /* the probabilities of classes of which one is right; their sum is 1 */
  TRAINER_ANY_CLASSES = 1, /* the probability of each class for itself (task multi_label) */
  TRAINER_NUMBERS = 2      /* numbers (task regression): "class" and "probability" below stand for them */
};
int trainer_predict_kind(const trainer_predictor* predictor);

int64_t trainer_predict_num_classes(const trainer_predictor* predictor);

/* Of TRAINER_ANY_CLASSES: the probability from which on an image belongs to the class, 0 <= label < number of classes; otherwise NaN. */
double trainer_predict_threshold(const trainer_predictor* predictor, int64_t label);

/* The name of a class, 0 <= label < number of classes; the label itself as text where the classes have only numbers; null for other labels.
 * It lives as long as the predictor. */
const char* trainer_predict_class_name(const trainer_predictor* predictor, int64_t label);

/* The number of features, the values that the last layer of the network gets; 0 if the network does not separate them from that layer. */
int64_t trainer_predict_num_features(const trainer_predictor* predictor);

/* Each of the next three writes the probabilities of all classes to `probabilities`, and the features to `features` if it is not null; both
 * have room for one row for each image. The second takes the content of an image file, the third `count` images of any sizes as one batch;
 * it fails for a network that was trained on images of 16 bits or other channels (dataset.mode). */
int trainer_predict_file(trainer_predictor* predictor, const char* path, double* probabilities, float* features, char* error,
                         size_t error_size);
int trainer_predict_encoded(trainer_predictor* predictor, const void* bytes, size_t size, double* probabilities, float* features,
                            char* error, size_t error_size);
int trainer_predict_images(trainer_predictor* predictor, const trainer_image* images, size_t count, double* probabilities, float* features,
                           char* error, size_t error_size);

/* The label that the operating point of the checkpoint (`trainer calibrate`) decides for, or -1 if the image is rejected; for a checkpoint
 * that was not calibrated the most probable class. `probabilities`: one row. Only of TRAINER_ONE_CLASS; otherwise -1. */
int64_t trainer_predict_decide(const trainer_predictor* predictor, const double* probabilities);

#ifdef __cplusplus
}
#endif

#endif
