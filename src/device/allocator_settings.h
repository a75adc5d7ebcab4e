#pragma once
// Settings of the GPU's memory allocator, in the format of PYTORCH_CUDA_ALLOC_CONF: "max_split_size_mb:128,expandable_segments:True".

#include <string>

namespace trainer::device {

// What is wrong with the settings; empty: nothing. Needs no GPU. Not while another thread uses the allocator.
std::string refusal_of_allocator(const std::string& settings);

// Throws UsageError. Once the CUDA module is open, before memory is allocated on a GPU.
void apply_allocator(const std::string& settings);

}  // namespace trainer::device
