#include <gtest/gtest.h>

#include "cli/output.h"

namespace trainer::cli {
namespace {

TEST(Table, ColumnsAreAsWideAsTheirWidestCell) {
  EXPECT_EQ(to_table({{"RUN"}, {"STATE"}, {"N", 1, true}}, {{"run é", "x", "5"}, {"b", "done", "10"}}),
            "RUN    STATE   N\n"
            "run é  x       5\n"
            "b      done   10\n");
  EXPECT_EQ(to_table({{""}, {""}}, {{"a", "b"}, {"cc", ""}}), "a   b\ncc\n");
}

TEST(Table, TheLeastImportantColumnsAreSkippedInANarrowTerminal) {
  const std::vector<Column> columns = {{"RUN"}, {"BEST", 2}, {"WHERE", 1}};
  const std::vector<Row> rows = {{"a", "1", "vm"}};
  EXPECT_EQ(to_table(columns, rows, 16), "RUN  BEST  WHERE\na    1     vm\n");
  EXPECT_EQ(to_table(columns, rows, 15), "RUN  BEST\na    1\n");
  EXPECT_EQ(to_table(columns, rows, 8), "RUN\na\n");
  EXPECT_EQ(to_table(columns, rows, 1), "RUN\na\n");  // never omitted
}

}  // namespace
}  // namespace trainer::cli
