#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "device/libtorch_settings.h"

namespace trainer::device {
namespace {

using ::testing::HasSubstr;

TEST(AllocatorSettings, AreAccepted) {
  for (const char* settings : {"", "expandable_segments:True", "max_split_size_mb:128, garbage_collection_threshold:0.8",
                               "roundup_power2_divisions:[256:1,512:2,>:4],expandable_segments:False", "per_process_memory_fraction:0.5"}) {
    EXPECT_EQ(refusal_of_allocator(settings), "") << settings;
  }
}

TEST(AllocatorSettings, AreRefusedWithTheReason) {
  EXPECT_EQ(refusal_of_allocator("expandable_segment:True"),
            "the allocator has no key \"expandable_segment\"; did you mean \"expandable_segments\"?");
  EXPECT_THAT(refusal_of_allocator("max_split_size_mb:128,x"),
              HasSubstr("the allocator has no key \"x\"; its keys are backend, expandable_segments, garbage_collection_threshold, "));
  EXPECT_EQ(refusal_of_allocator("max_split_size_mb"), "\"max_split_size_mb\" has no value; write max_split_size_mb:VALUE");
  EXPECT_EQ(refusal_of_allocator("max_split_size_mb:large"), "\"max_split_size_mb:large\": the value must be a number");
  EXPECT_THAT(refusal_of_allocator("max_split_size_mb:1"), HasSubstr("too small, must be >= 20"));
  EXPECT_THAT(refusal_of_allocator("expandable_segments:true"), HasSubstr("Expected 'True' or 'False'"));
  EXPECT_EQ(refusal_of_allocator("backend:cudaMallocAsync"),
            "LibTorch chooses the allocator's backend when it is loaded; set the environment variable PYTORCH_CUDA_ALLOC_CONF instead");
}

}  // namespace
}  // namespace trainer::device
