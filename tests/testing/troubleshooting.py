"""The table of docs/troubleshooting.md, and a decorator for the tests that check its rows."""

import functools
import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "troubleshooting.md"
# The placeholders in messages, which the page explains.
PLACEHOLDERS = {"RANK": r"\d+", "SIZE": r"\d+", "PROCESS": r"\d+", "HOST": r"\S+", "STEP": r"\d+", "SECONDS": r"[\d.]+m?\d*s",
                "PHASE": r"(?:start-up|the set-up of NCCL|(?:loading of )?step \d+|validation|checkpoint)", "ADDRESS": r"\S+:\d+", "PORT": r"\d+", "FILE": r"\S+",
                "CODE": r"\d+", "NUMBER": r"\d+", "TEXT": r"\S.*"}
# The text in the column of exit codes if the run continues.
CONTINUES = "continues"


class Row:
    """A row: what happened, messages, exit codes, remedy."""

    def __init__(self, cells):
        self.name, messages, codes, self.remedy = cells
        self.messages = re.findall(r"`([^`]+)`", messages)
        self.code, self.others_code = None, None
        if codes != CONTINUES:
            code, others = re.fullmatch(r"(\d+)(?:, others (\d+))?", codes).groups()
            self.code, self.others_code = int(code), int(others or code)
        self.was_seen = False

    def pattern(self, message, values):
        words = re.split(r"\b([A-Z]+)\b", message)
        return "".join(re.escape(str(values[word])) if word in values else PLACEHOLDERS.get(word, re.escape(word)) for word in words)

    def check(self, case, err, code=None, other_codes=(), **values):
        """`err`: the whole stderr. `code`: the exit code of the launcher, or of the rank without a launcher; None if the run continues.
        `values`: values of placeholders."""
        self.was_seen = True
        case.assertEqual(code, self.code, err)
        case.assertEqual(set(other_codes) - {self.others_code}, set(), err)
        for message in self.messages:
            case.assertRegex(err, self.pattern(message, values))
        if not self.messages:
            case.assertNotRegex(err, "error|warning")


def read_rows():
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [Row(row) for row in cells if not set(row[0]) <= set("- ") and row[2] != "exit code"]


def plants(*names):
    """Marks a test that injects the faults of the rows with these names. The test gets the rows as arguments and has to check them."""

    def mark(test):
        @functools.wraps(test)
        def run(self):
            rows = {row.name: row for row in read_rows()}
            self.assertEqual(set(names) - set(rows), set(), f"rows of {PAGE.name}")
            test(self, *(rows[name] for name in names))
            for name in names:
                self.assertTrue(rows[name].was_seen, name)

        run.rows = names
        return run

    return mark
