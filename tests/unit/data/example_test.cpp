// The transform of docs/extending.md.

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "tests/examples/random_shift.cpp"
#include "tests/testing/read_component.h"
#include "tests/testing/shown_in_docs.h"

namespace trainer::data {
namespace {

TEST(ExampleTransform, MovesTheImageToEveryPlace) {
  TransformRegistry registry("transform");
  add_random_shift(registry);
  const auto components = trainer::testing::read_components(registry, "[random_shift: {pixels: 1}]");
  const auto transform = std::get<std::shared_ptr<const ImageTransform>>(registry.make(components.at(0)));
  EXPECT_EQ(transform->plan({4, 5, false}).width, 5);
  const std::vector<uint8_t> pixels(4 * 5, 200);
  const EpochSeeds seeds(/*seed=*/1, /*number=*/0);
  std::set<std::pair<int, int>> places;
  for (int64_t index = 0; index < 200; ++index) {
    PictureMemory memory;
    Picture picture(ImageView::whole(pixels.data(), 1, 4, 5), memory);
    SampleRandom random(seeds, {index});
    transform->apply(picture, random);
    const auto& view = picture.view();
    EXPECT_EQ(std::pair(view.window_height, view.window_width), std::pair(4, 5));
    places.emplace(view.top, view.left);
  }
  EXPECT_EQ(places.size(), 9U);
}

TEST(ExampleTransform, EqualsTheCodeInTheDocs) { EXPECT_TRUE(trainer::testing::is_shown_in_docs("random_shift.cpp")); }

}  // namespace
}  // namespace trainer::data
