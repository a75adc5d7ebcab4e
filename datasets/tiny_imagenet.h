#pragma once
// Tiny ImageNet (Stanford, CS231n): 64 x 64 images of 200 classes of ImageNet. wnids.txt lists the ids of the classes; sorted by bytes,
// they have the order of the labels. words.txt has their names. train/ID/images contains the training images of a class, val/images the
// validation images; val/val_annotations.txt lists the class id of each validation image.

#include "datasets/archive.h"
#include "datasets/dataset_registry.h"

namespace trainer::datasets {

const PublishedSource& tiny_imagenet_source();

struct TinyImagenetOptions : PublishedOptions {
  void describe(KeyTable& keys);
};

// Reads the ids and names of the classes; there may be any number of them. If the files are missing but will be downloaded, 200 classes are
// assumed. If the ids and names cannot be read, the factory's `missing` is the reason, and its open() throws it as a DataError.
data::DatasetFactory tiny_imagenet_factory(const PublishedSource& source, const TinyImagenetOptions& options);

}  // namespace trainer::datasets
