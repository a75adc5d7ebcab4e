// Reads {"cases": [...]} on stdin and prints the same with the program's traces, for tests/parity/test_grad_scaler.py.

#include <iostream>

#include "tests/testing/scaler_cases.h"

int main() {
  auto document = nlohmann::json::parse(std::cin);
  for (auto& case_json : document.at("cases")) case_json = trainer::testing::run_scaler_case(case_json);
  std::cout << document.dump() << '\n';
}
