// Classifies image files with a network of `trainer export --output network.onnx`, as `trainer predict` does (if the network is for grey
// images, OpenCV's grey values can differ by one from the program's):
//
//   g++ -std=c++17 predict_onnx.cpp -I ONNXRUNTIME/include -L ONNXRUNTIME/lib -lonnxruntime
//       -I /usr/include/opencv4 -lopencv_core -lopencv_imgproc -lopencv_imgcodecs -o predict_onnx
//   ./predict_onnx network.onnx photo.png ...

#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

int main(int argc, char** argv) {
  if (argc < 3) return std::puts("usage: predict_onnx network.onnx photo.png ..."), 2;
  Ort::Env env;
  Ort::Session session(env, argv[1], Ort::SessionOptions());
  const int64_t channels = session.GetInputTypeInfo(0).GetTensorTypeAndShapeInfo().GetShape()[3];
  // OpenCV turns images as their EXIF data say, unless it is told not to.
  const auto description = session.GetModelMetadata().LookupCustomMetadataMapAllocated("trainer", Ort::AllocatorWithDefaultOptions());
  const bool is_turned_upright = std::strstr(description ? description.get() : "", "\"is_turned_upright\":true") != nullptr;
  const int flags = cv::IMREAD_COLOR | (is_turned_upright ? 0 : cv::IMREAD_IGNORE_ORIENTATION);
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  for (int i = 2; i < argc; ++i) {
    cv::Mat image = cv::imread(argv[i], flags);  // blue first
    if (image.empty()) return std::fprintf(stderr, "%s: cannot be read as an image\n", argv[i]), 3;
    cv::cvtColor(image, image, channels == 1 ? cv::COLOR_BGR2GRAY : cv::COLOR_BGR2RGB);
    const int64_t shape[] = {1, image.rows, image.cols, channels};
    const auto input = Ort::Value::CreateTensor<uint8_t>(memory, image.data, image.total() * image.elemSize(), shape, 4);
    const char *name = "image", *wanted = "probabilities";
    const auto outputs = session.Run(Ort::RunOptions(), &name, &input, 1, &wanted, 1);
    const auto count = outputs[0].GetTensorTypeAndShapeInfo().GetElementCount();
    const float* probabilities = outputs[0].GetTensorData<float>();
    const auto best = std::max_element(probabilities, probabilities + count) - probabilities;
    std::printf("%s  class %td  %.2f%%\n", argv[i], best, 100 * probabilities[best]);
  }
}
