#include <gtest/gtest.h>

#include "cli/output.h"

namespace trainer::cli {
namespace {

TEST(Table, ColumnsAreAsWideAsTheirWidestCell) {
  EXPECT_EQ(to_table({{"RUN", {"run é", "b"}, 0}, {"STATE", {"x", "done"}, 0}}, std::nullopt),
            "RUN    STATE\n"
            "run é  x\n"
            "b      done\n");
}

TEST(Table, TheLeastImportantColumnsAreSkippedInANarrowTerminal) {
  const std::vector<Column> columns = {{"RUN", {"a"}, 0}, {"BEST", {"1"}, 2}, {"WHERE", {"vm"}, 1}};
  EXPECT_EQ(to_table(columns, 16), "RUN  BEST  WHERE\na    1     vm\n");
  EXPECT_EQ(to_table(columns, 15), "RUN  BEST\na    1\n");
  EXPECT_EQ(to_table(columns, 8), "RUN\na\n");
  EXPECT_EQ(to_table(columns, 1), "RUN\na\n");  // never omitted
}

}  // namespace
}  // namespace trainer::cli
