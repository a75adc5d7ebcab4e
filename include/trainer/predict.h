#ifndef TRAINER_PREDICT_H
#define TRAINER_PREDICT_H
/* Predictions with networks trained by trainer, for programs in C and in any language that can call C (libtrainer_predict).
 *
 * Network, image decoder, transforms and precision are those of the program. For one image at a time on a CPU, the probabilities are the
 * same, to the last bit, as those of `trainer predict` with the same number of threads (OMP_NUM_THREADS) on the same kind of processor. In
 * a batch of trainer_predict_images(), with another number of threads, on another kind of processor and on a GPU, the last digits can
 * differ. The training code of trainer is not loaded.
 *
 * Functions with the parameter `error` return 0 on success and another number on failure; trainer_predict_open() returns null on failure.
 * If such a function fails, it writes one sentence in UTF-8 to `error`, which has `error_size` bytes, including the null byte at the end; a
 * longer sentence is truncated. `error` may be null.
 *
 * Several threads may use a predictor at the same time. They decode images in parallel and take turns in the network, which
 * itself uses several cores. A process that fork() makes after the first call of trainer_predict_open() cannot predict, because LibTorch's
 * threads are not in it: all functions that compute fail there. Servers with several processes open their predictors after fork().
 * LibTorch's settings, such as its number of threads, are not changed; but opening a predictor on a GPU makes the first visible GPU the
 * current one of the calling thread. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trainer_predictor trainer_predictor;

/* The order of the bytes of a pixel; alpha is ignored, as in Pillow's convert("RGB"). For a colour network, grey pixels are converted
 * to colours; for a grey network, colours are converted like Pillow's convert("L"). */
enum { TRAINER_RGB = 0, TRAINER_BGR = 1, TRAINER_RGBA = 2, TRAINER_BGRA = 3, TRAINER_GREY = 4 };

typedef struct trainer_image {
  const uint8_t* pixels; /* of the first row */
  int32_t height;
  int32_t width;
  int64_t stride; /* bytes from one row to the next; 0: rows without gaps */
  int32_t order;  /* TRAINER_RGB ... */
} trainer_image;

/* Flags of trainer_predict_open(). */
enum { TRAINER_AVERAGED = 1 /* use the averaged parameters of a run with training.ema */ };

/* Opens a checkpoint written by `trainer`, or the best one in the folder of a run. `device`: "cpu", "cuda", or null for the device of the
 * checkpoint's experiment, by default the GPU if there is one. A process that uses a GPU must open its first predictor on the GPU, before
 * it uses LibTorch, because LibTorch searches for its CUDA libraries only once. `flags`: 0, or flags as above. Release the predictor with
 * trainer_predict_close(). */
trainer_predictor* trainer_predict_open(const char* checkpoint, const char* device, int flags, char* error, size_t error_size);

/* `predictor` may be null. No other thread may use the predictor during or after this call. */
void trainer_predict_close(trainer_predictor* predictor);

/* The kind of the network's answer for an image. */
enum {
  TRAINER_ONE_CLASS = 0,   /* the probabilities of exclusive classes; their sum is 1 */
  TRAINER_ANY_CLASSES = 1, /* an independent probability for each class (task multi_label) */
  TRAINER_NUMBERS = 2      /* numbers (task regression); below, "class" means one of these numbers, and "probability" its value */
};
int trainer_predict_kind(const trainer_predictor* predictor);

int64_t trainer_predict_num_classes(const trainer_predictor* predictor);

/* For TRAINER_ANY_CLASSES: the minimum probability at which an image is assigned to the class, 0 <= label < number of classes; otherwise
 * NaN. */
double trainer_predict_threshold(const trainer_predictor* predictor, int64_t label);

/* The name of a class, 0 <= label < number of classes; the label itself as text if the classes have only numbers; null for other labels.
 * Valid as long as the predictor. */
const char* trainer_predict_class_name(const trainer_predictor* predictor, int64_t label);

/* The number of features, which are the inputs of the network's last layer; 0 if the network does not separate them from that layer. */
int64_t trainer_predict_num_features(const trainer_predictor* predictor);

/* Each of the next three functions writes the probabilities of all classes to `probabilities`, and the features to `features` if it is not
 * null; both must have space for one row per image. trainer_predict_encoded() reads the content of an image file in memory. Files are
 * turned upright by their EXIF orientation if those of the training were; pixels must already be so (OpenCV's imread() turns them by
 * default). trainer_predict_images() reads `count` images of any sizes as one batch; it fails for a network that was trained with
 * dataset.mode grey16 or raw. */
int trainer_predict_file(trainer_predictor* predictor, const char* path, double* probabilities, float* features, char* error,
                         size_t error_size);
int trainer_predict_encoded(trainer_predictor* predictor, const void* bytes, size_t size, double* probabilities, float* features,
                            char* error, size_t error_size);
int trainer_predict_images(trainer_predictor* predictor, const trainer_image* images, size_t count, double* probabilities, float* features,
                           char* error, size_t error_size);

/* Height and width of the images that the network receives after its transforms, such as 224 and 224. The pointers may be null. */
void trainer_predict_input_size(const trainer_predictor* predictor, int32_t* height, int32_t* width);

/* Each writes to `heatmap`, [height][width] of trainer_predict_input_size(), how much each pixel raises the score of the class `label`,
 * from 0 to 1: Grad-CAM (Selvaraju et al. 2017) of the network's last maps. The image is read as by trainer_predict_encoded() or
 * trainer_predict_images(). They fail for a network without maps, such as one of linear layers only. */
int trainer_predict_heatmap_encoded(trainer_predictor* predictor, const void* bytes, size_t size, int64_t label, float* heatmap,
                                    char* error, size_t error_size);
int trainer_predict_heatmap(trainer_predictor* predictor, const trainer_image* image, int64_t label, float* heatmap, char* error,
                            size_t error_size);

/* The label chosen by the operating point of the checkpoint (`trainer calibrate`), or -1 if the image is rejected; without calibration,
 * the most probable class. `probabilities`: one row. Only for TRAINER_ONE_CLASS; otherwise, and for a null pointer, -1. */
int64_t trainer_predict_decide(const trainer_predictor* predictor, const double* probabilities);

#ifdef __cplusplus
}
#endif

#endif
