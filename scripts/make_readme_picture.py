#!/usr/bin/env python3
"""Makes docs/images/first_run.png for the README: trains configs/digits.yaml and shows its terminal and the page of `trainer report`.

usage: scripts/make_readme_picture.py TRAINER        (TRAINER is the built program; needs headless Chromium: scripts/setup.sh --dev)
"""

import html
import pathlib
import subprocess
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from testing import browser, terminal  # noqa: E402

COLUMNS = 88
PAGE = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; background: #eef1f5; font-family: sans-serif; }
main { display: flex; gap: 22px; padding: 22px; align-items: flex-start; }
figure { margin: 0; border-radius: 8px; overflow: hidden; box-shadow: 0 2px 9px #0004; }
.terminal { background: #16191f; color: #d6dbe4; padding: 18px 20px; font: 13px/1.42 "DejaVu Sans Mono", monospace; white-space: pre; margin: 0; }
iframe { border: 0; width: 800px; height: 1500px; margin-top: -500px; flex-shrink: 0; display: block; }
.report { height: 690px; }
</style><main><figure class="terminal">TEXT</figure><figure class="report"><iframe src="report.html"></iframe></figure></main>"""


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    trainer = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "configs").symlink_to(ROOT / "configs")
        (folder / "datasets").symlink_to(ROOT / "datasets")
        lines = []
        for words in (["launch", "--config", "configs/digits.yaml"],
                      ["predict", "--checkpoint", "runs/digits", "--top-k", "2", *(f"datasets/mnist_sample/examples/{digit}.png" for digit in (3, 7))],
                      ["export", "--checkpoint", "runs/digits", "--output", "digits.onnx"]):
            code, output = terminal.run([trainer, *words], columns=COLUMNS, cwd=folder)
            if code != 0:
                sys.exit(output)
            typed = textwrap.wrap("$ trainer " + " ".join(words), COLUMNS - 2, subsequent_indent="    ", break_on_hyphens=False)
            lines += [*(line + " \\" for line in typed[:-1]), typed[-1], *terminal.show(output, COLUMNS).lines(), ""]
        subprocess.run([trainer, "report", "runs/digits", "--output", "report.html"], check=True, cwd=folder, stdout=subprocess.DEVNULL)
        page = PAGE.replace("TEXT", html.escape("\n".join(lines[:-1])))
        (folder / "picture.html").write_text(page)
        chromium = browser.Browser(folder / "profile")
        try:
            chromium.open((folder / "picture.html").as_uri(), width=1580, height=735)
            chromium.wait_for("document.querySelector('iframe').clientWidth > 0")
            chromium.screenshot(ROOT / "docs" / "images" / "first_run.png", whole_page=False)
        finally:
            chromium.close()


if __name__ == "__main__":
    main()
