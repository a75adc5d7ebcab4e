// parity_checkpoint torch|safetensors IN OUT: reads IN in either format and writes OUT in the given one, for
// tests/parity/test_checkpoint.py. If there is an error, prints it and returns its exit code.

#include <iostream>
#include <string_view>

#include "base/file.h"
#include "checkpoint/pytorch_file.h"
#include "checkpoint/safetensors.h"
#include "trainer/checkpoint.h"
#include "trainer/error.h"

int main(int argc, char** argv) try {
  if (argc != 4) return 2;
  const auto tree = trainer::checkpoint::load(argv[2]);
  trainer::OutputFile output(argv[3]);
  if (std::string_view(argv[1]) == "safetensors") {
    trainer::checkpoint::write_safetensors({std::get<trainer::state::Dict>(tree.value()), {{"made_by", "trainer"}}}, output);
  } else {
    trainer::checkpoint::write_pytorch_file(tree, output);
  }
  output.commit();
} catch (const trainer::Error& error) {
  std::cerr << error.what() << '\n';
  return static_cast<int>(error.exit_code());
}
