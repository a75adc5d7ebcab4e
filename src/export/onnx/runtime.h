#pragma once
// Runs .onnx files with ONNX Runtime, whose shared library is loaded when the first file is opened.

#include <filesystem>
#include <memory>

#include "export/exported_network.h"

namespace trainer::onnx {

// `runtime`: the library's file; if empty, the system's library, or else the library in the package onnxruntime of the python3 in PATH.
// Throws UsageError if there is no library, and otherwise like exported::open_network().
std::unique_ptr<exported::ExportedNetwork> open_network(const std::filesystem::path& file, const std::filesystem::path& runtime,
                                                        int num_threads);

}  // namespace trainer::onnx
