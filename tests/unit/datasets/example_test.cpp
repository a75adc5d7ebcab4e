// The data set of docs/extending.md.

#include <gtest/gtest.h>

#include "tests/examples/stripes.cpp"
#include "tests/testing/read_component.h"
#include "tests/testing/shown_in_docs.h"

namespace trainer::datasets::test {
namespace {

TEST(ExampleDataset, OpensFromItsOptionsAndReads) {
  DatasetRegistry registry("dataset");
  add_stripes(registry);
  const auto factory = registry.make(trainer::testing::read_component(registry, "{name: stripes, num_train: 6, num_validation: 4}"));
  EXPECT_EQ(factory.info.num_classes, 2);
  const auto logger = make_quiet_logger();
  const auto train = factory.open(data::Split::kTrain, *logger);
  EXPECT_EQ(train->size(), 6);
  EXPECT_EQ(factory.open(data::Split::kValidation, *logger)->size(), 4);
  data::Scratch scratch;
  for (int64_t index = 0; index < train->size(); ++index) {
    const auto sample = train->read(index, scratch);
    EXPECT_EQ(sample.label, index % 2);
    EXPECT_EQ(sample.image, data::ImageView::whole(scratch.bytes.data(), 1, 32, 32));
    const bool same_along_x = sample.image.pixels[0] == sample.image.pixels[16] && sample.image.pixels[0] == sample.image.pixels[4];
    EXPECT_EQ(same_along_x, sample.label == 0) << index;
  }
}

TEST(ExampleDataset, EqualsTheCodeInTheDocs) { EXPECT_TRUE(trainer::testing::is_shown_in_docs("stripes.cpp")); }

}  // namespace
}  // namespace trainer::datasets::test
