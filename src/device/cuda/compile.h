#pragma once

#include <string>
#include <vector>

// CudaModule::compile
std::vector<const void*> compile_kernels(const std::string& source, const std::vector<std::string>& names, int device);
