// Reads {"cases": [...]} on stdin and prints the same with the program's losses, for tests/parity/test_losses.py.

#include <iostream>

#include "tests/testing/loss_cases.h"

int main() {
  auto document = nlohmann::json::parse(std::cin);
  for (auto& case_json : document.at("cases")) case_json = trainer::testing::run_loss_case(case_json);
  std::cout << document.dump() << '\n';
}
