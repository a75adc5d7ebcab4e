#pragma once
// OpenCV writes some of its errors to std::cerr, whatever its log level is.

namespace trainer::images {

// While one exists, nothing that its thread writes to std::cerr appears.
class QuietErrors {
 public:
  QuietErrors();
  ~QuietErrors();
  QuietErrors(const QuietErrors&) = delete;
  QuietErrors& operator=(const QuietErrors&) = delete;
};

}  // namespace trainer::images
