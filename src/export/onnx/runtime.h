#pragma once
// Runs .onnx files with ONNX Runtime, whose shared library is found when the first of them is opened.

#include <filesystem>
#include <memory>

#include "export/exported_network.h"

namespace trainer::onnx {

// `runtime`: the library's file; empty: the system's, else that of the package onnxruntime of the python3 in PATH. Throws UsageError if
// there is none, and as exported::open_network().
std::unique_ptr<exported::ExportedNetwork> open_network(const std::filesystem::path& file, const std::filesystem::path& runtime,
                                                        int num_threads);

}  // namespace trainer::onnx
