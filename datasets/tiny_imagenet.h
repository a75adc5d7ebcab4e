#pragma once
// Tiny ImageNet (Stanford, CS231n): images of 64 x 64 of 200 classes of ImageNet. wnids.txt lists the ids of the classes, whose order by
// bytes is that of the labels; words.txt has their names. train/ID/images holds the training images, val/images those for validation, whose
// ids are in val/val_annotations.txt.

#include <string>

#include "datasets/archive.h"
#include "datasets/registry.h"

namespace trainer::datasets {

const ArchiveSource& tiny_imagenet_archive();

struct TinyImagenetOptions : PublishedOptions {
  void describe(KeyTable& keys);
};

// Reads the ids and names of the classes, whose number is free. Without the files there are 200 if they will be downloaded; else the
// factory tells what is missing, and its open() throws that as a DataError.
data::DatasetFactory tiny_imagenet_factory(const ArchiveSource& archive, const TinyImagenetOptions& options);

}  // namespace trainer::datasets
