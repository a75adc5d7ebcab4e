#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "device/libtorch_settings.h"

namespace trainer::device {
namespace {

TEST(LibraryDefaults, AreSetUnlessTheUserHasSetThem) {
  std::map<std::string, std::string> defaults = {{"TORCH_CPP_LOG_LEVEL", "FATAL"},        {"CUBLAS_WORKSPACE_CONFIG", ":4096:8"},
                                                 {"NCCL_LAUNCH_ORDER_IMPLICIT", "1"},     {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},
                                                 {"TORCH_NCCL_ENABLE_MONITORING", "0"},   {"TORCH_NCCL_DUMP_ON_TIMEOUT", "0"},
                                                 {"TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"}, {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "0"}};
  if (!std::filesystem::exists("/dev/nvidiactl") && !std::filesystem::exists("/dev/dxg")) defaults["KINETO_LOG_LEVEL"] = "5";
  for (const auto& [name, value] : defaults) {
    setenv(name.c_str(), "mine", 1);
    set_library_defaults();
    EXPECT_STREQ(std::getenv(name.c_str()), "mine") << name;
    unsetenv(name.c_str());
    set_library_defaults();
    EXPECT_EQ(std::getenv(name.c_str()), value) << name;
  }
}

}  // namespace
}  // namespace trainer::device
