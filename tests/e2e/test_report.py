"""`trainer runs`, `trainer compare` and `trainer report`, whose page is opened in a browser if one is installed."""

import csv
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
import browser  # noqa: E402
import terminal  # noqa: E402
from troubleshooting import plants  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ["TRAINER_BINARY"])
# Without a browser, the test of the page is skipped, or fails in CI.
HAS_BROWSER = browser.BROWSER is not None or os.environ.get("CI") == "true"
HAS_IMAGES = os.environ.get("TRAINER_OPENCV") != "0"
LINEAR = ["--config", ROOT / "configs" / "demo_linear.yaml"]
IMAGES = ["--config", ROOT / "configs" / "quickstart.yaml", "training.epochs=null", "training.steps=2", "logging.every_steps=1"]
START = {"event": "start", "time": 1, "epoch": 0, "step": 0, "monitor": "validation/top1", "mode": "max", "metrics": {"top1": {"format": "percent"}}}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
# The number of canvases on which something is drawn.
NUM_DRAWN = """[...document.querySelectorAll(".charts canvas")].filter((canvas) =>
  canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value !== 0)).length"""


def trainer(*args, binary=BINARY, **options):
    return subprocess.run([binary, *map(str, args)], cwd=ROOT, capture_output=True, text=True, timeout=120, **options)


def evaluation(num_samples):
    """The content of evaluation.json as the program writes it."""
    return {"split": "validation", "epoch": 0, "step": 4, "num_samples": num_samples, "metrics": {"loss": 2.3, "top1": 0.1},
            "classes": [{"name": HOSTILE if label == 0 else f"class {label}", "num_samples": 50, "recall": 0.5, "precision": 0.25, "f1": 1 / 3}
                        for label in range(10)],
            "confusion": [[25 if column == row else 3 for column in range(10)] for row in range(10)],
            "calibration": [{"confidence": (at + 0.5) / 15, "accuracy": at / 15, "count": at} for at in range(15)],
            "mistakes": [{"index": index, "label": 0, "predicted": 1, "confidence": 0.9} for index in (3, num_samples - 1)]}


def calibration():
    """The content of the file of `trainer calibrate`."""
    measured = {"value": 0.25, "low": 0.125, "high": 0.5}
    bins = evaluation(500)["calibration"]
    return {"temperature": 1.25, "reject_below": 0.5, "accuracy": measured, "rejected": measured, "num_samples": 500, "step": 4, "images": "the validation set",
            "threshold": {"class": HOSTILE, "label": 0, "probability": 0.0625, "misses": measured, "false_alarms": measured},
            "calibration_error": {"before": measured, "after": measured}, "calibration": {"before": bins, "after": bins[5:]},
            "classes": [{"name": HOSTILE if label == 0 else f"class {label}", "num_samples": 50, "average_precision": (label + 1) / 16,
                         "precision_recall": [{"threshold": 0.5 - at / 50, "recall": at / 20, "precision": 1 - at / 40} for at in range(1, 21)]} for label in range(10)]}


class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="trainer-report-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.runs = cls.folder / "runs"
        for name, args in (("images", IMAGES), ("linear", LINEAR)):
            run = trainer(*args, "--run-dir", cls.runs / name)
            assert run.returncode == 0, run.stderr
        (cls.runs / "images" / "evaluation.json").write_text(json.dumps(evaluation(500)))
        (cls.runs / "images" / "best_evaluation.json").write_text(json.dumps(evaluation(400) | {"step": 2}))
        (cls.runs / "images" / "calibration.json").write_text(json.dumps(calibration()))

    def report(self, *args):
        page = self.folder / f"{self.id()}.html"
        run = trainer("report", *args, "--output", page)
        self.assertEqual(run.returncode, 0, run.stderr)
        return page

    def open_browser(self):
        profile = tempfile.TemporaryDirectory(prefix="trainer-browser-", ignore_cleanup_errors=True)
        self.addCleanup(profile.cleanup)
        page = browser.Browser(profile.name)
        self.addCleanup(page.close)
        return page

    def test_runs_and_compare_need_no_libtorch(self):
        alone = self.folder / "alone"
        alone.mkdir()
        shutil.copy(BINARY, alone / "trainer")
        self.assertNotEqual(trainer("report", "--help", "x", binary=alone / "trainer").returncode, 0)  # the library is not there
        runs = trainer("runs", self.runs, binary=alone / "trainer")
        self.assertEqual(runs.returncode, 0, runs.stderr)
        lines = runs.stdout.splitlines()
        self.assertRegex(lines[0], r"^RUN +STATE +EPOCH +BEST +STARTED +TIME +WHERE$")
        self.assertRegex(lines[1], rf"^{self.runs}/linear +done +5/5 +loss \d\.\d{{4}} +\d{{4}}-\d\d-\d\d \d\d:\d\d +[\d.]+s +\S+, cpu$")
        self.assertRegex(lines[2], rf"^{self.runs}/images +done +step 2/2 +top1 ")
        compare = trainer("compare", self.runs / "images", self.runs / "linear", "--json", binary=alone / "trainer")
        self.assertEqual(compare.returncode, 0, compare.stderr)
        difference = json.loads(compare.stdout)
        self.assertEqual(difference["config"]["model.name"], ["resnet20", "demo_linear"])
        self.assertEqual(difference["result"]["state"], ["done", "done"])
        self.assertNotIn("libtorch_version", difference["environment"])

    def test_runs_as_json_and_in_a_narrow_terminal(self):
        runs = json.loads(trainer("runs", self.runs, "--json").stdout)
        self.assertEqual([pathlib.Path(run["run"]).name for run in runs], ["linear", "images"])
        self.assertEqual((runs[0]["state"], runs[0]["step"], runs[0]["best"]["metric"]), ("done", 160, "loss"))
        code, text = terminal.run([BINARY, "runs", "runs"], columns=30, cwd=self.folder)
        screen = terminal.show(text, 30)
        self.assertEqual((code, screen.wrapped), (0, []), text)
        self.assertRegex(screen.lines()[0], "^RUN +STATE +BEST$|^RUN +STATE$")

    def test_compare_has_long_values_below_its_table(self):
        text = trainer("compare", self.runs / "images", self.runs / "linear").stdout
        # Short values are in the table, long values below it.
        self.assertRegex(text, r"(?m)^CONFIGURATION +images +linear$")
        self.assertRegex(text, r"(?m)^optimizer.lr +\S+ +\S+$")
        self.assertRegex(text, r"(?m)^dataset.train_transforms\n  images  .*\n  linear  ")

    def test_runs_with_keys_sorted_and_as_csv(self):
        runs = self.folder / "sweep"
        # The second run is the best; the third ended before its validation.
        for name, lr, top1 in (("a", "0.1", 0.5), ("b", "1.0e-02", 0.75), ("c", "0.001", None)):
            self.make_run(runs / name, top1, experiment='"x, y"', optimizer=f"{{name: sgd, lr: {lr}}}")
        listed = trainer("runs", "--columns", "optimizer.lr,optimizer.name", runs, "--sort", "metric").stdout.splitlines()
        self.assertRegex(listed[0], r"^RUN +STATE +EPOCH +BEST +optimizer.lr +optimizer.name$")
        self.assertEqual([line.split()[0][-1] for line in listed[1:]], ["b", "a", "c"])
        self.assertRegex(listed[1], r"top1 75.00% +1.0e-02 +sgd$")
        rows = list(csv.DictReader(trainer("runs", runs, "--columns", "experiment", "--sort", "optimizer.lr", "--csv").stdout.splitlines()))
        self.assertEqual([(row["run"][-1], row["metric"], row["best"]) for row in rows], [("c", "", ""), ("b", "top1", "0.75"), ("a", "top1", "0.5")])
        self.assertIn("x, y", rows[0]["experiment"])
        wrong = trainer("runs", runs, "--columns", "optimizer.lrr")
        self.assertEqual((wrong.returncode, wrong.stderr),
                         (2, 'error: no run has the key "optimizer.lrr" in its config.yaml; did you mean "optimizer.lr"?\n'))

    def test_control_characters_are_shown_in_csv_and_escaped_in_json(self):
        control = "\x1b]0;title\x07\x7f\u0085"
        folder = self.folder / f"a{control}"
        environment = {"ranks": [{"host": f"host{control}", "device": "cpu"}]}
        for name in ("one", "two"):
            self.make_run(folder / name, 0.5, experiment=name)
            (folder / name / "environment.json").write_text(json.dumps(environment))
        printed = {command: trainer(*command).stdout
                   for command in (("runs", folder, "--csv"), ("runs", folder, "--json"), ("compare", *folder.iterdir(), "--json"))}
        table, runs, comparison = printed.values()
        for text in printed.values():
            self.assertNotRegex(text, r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
        shown = r"\x1b]0;title\x07\x7f\xc2\x85"
        self.assertEqual({(pathlib.Path(row["run"]).parent.name, row["where"]) for row in csv.DictReader(table.splitlines())},
                         {(f"a{shown}", f"host{shown}, cpu")})
        self.assertEqual({(pathlib.Path(run["run"]).parent, run["where"]) for run in json.loads(runs)}, {(folder, f"host{control}, cpu")})
        self.assertEqual({pathlib.Path(run).parent for run in json.loads(comparison)["runs"]}, {folder})

    def test_deeply_nested_json_is_refused_by_name(self):
        folder = self.folder / "deep"
        deep = "[" * 200_000 + "]" * 200_000
        for name, text in (("environment.json", deep), ("evaluation.json", deep),
                           ("metrics.jsonl", f'{{"event": "end", "message": {deep}}}\n')):
            with self.subTest(name):
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(self.runs, folder)
                (folder / "linear" / name).write_text(text)
                refusal = f"{folder}/linear/{name}: its JSON has more than 100 levels, which no run of trainer writes; restore the file or remove it"
                report = trainer("report", folder / "linear", "--output", self.folder / "deep.html")
                self.assertEqual((report.returncode, report.stderr), (3, f"error: {refusal}\n"))
                runs = trainer("runs", folder)
                self.assertEqual(runs.returncode, 0, runs.stderr)
                self.assertIn(f"{folder}/images ", runs.stdout)
                self.assertEqual(runs.stderr, "" if name == "evaluation.json" else f"warning: {refusal}\n")
        (folder / "linear" / "metrics.jsonl").write_text('{"event": "train", "step": 1, "loss":' + 400_000 * " " + "NaN}\n")
        self.assertEqual(trainer("compare", folder / "linear", folder / "images").returncode, 0)

    @plants("A folder without a run is shown")
    def test_mistakes_in_the_command_line(self, row):
        for args, message in (
            (("compare", self.runs / "images"), "runs: at least 2 expected, but 1 given (see `trainer compare --help`)"),
            (("report", self.folder), f"{self.folder}: this is not a run directory, because it has no metrics.jsonl; "
                                      f"`trainer runs {self.folder}` lists the runs in it"),
            (("report", self.runs / "images", "--port", "80"), "--port has no effect without --live: add --live, or omit --port"),
            (("report", self.runs / "images", "--live", "--output", "a"), "--live writes no file: omit --output, or --live"),
        ):
            run = trainer(*args)
            self.assertEqual((run.returncode, run.stderr), (2, f"error: {message}\n"))
        row.check(self, trainer("report", self.folder).stderr, 2, FILE=self.folder)

    @unittest.skipUnless(HAS_BROWSER, "no Chromium")
    def test_page_in_a_browser(self):
        page = self.report(self.runs / "images", self.runs / "linear")
        address = f"file://{page}"
        view = self.open_browser()
        for width in (400, 1400):
            for scheme in ("light", "dark"):
                view.open(address, width=width, scheme=scheme)
                view.wait_for("document.querySelectorAll('.charts canvas').length > 0")
                self.assertEqual(view.evaluate(NUM_DRAWN), view.evaluate("document.querySelectorAll('.charts canvas').length"))
                self.assertLessEqual(view.evaluate("document.documentElement.scrollWidth"), width)
                self.assertEqual(view.messages, [])
                self.assertEqual([request for request in view.requests if not request.startswith("data:")], [address])
        self.assertRegex(view.evaluate("document.querySelector('#run-table').textContent"), r"images.*linear")
        self.assertEqual(view.evaluate("document.querySelector('#diagnostics').open"), False)
        # The bars of the reliability diagrams: of the evaluation, before and after the calibration. The precision-recall diagram has none.
        self.assertEqual(view.evaluate("[...document.querySelectorAll('svg.reliability')].map((node) => node.querySelectorAll('rect').length).join()"), "14,14,10,0")
        text = view.evaluate("document.querySelector('#evaluation').textContent")
        for words in ("500 images of the validation split after step 4", "calibration error 25.00% (12.50% to 50.00%)", "Temperature1.2500",
                      "assigned if its probability is at least 6.25%", "50 images; average precision 6.25%"):
            self.assertIn(words, text)
        self.assertEqual(view.evaluate("document.querySelector('svg .curve').points.length"), 20)
        view.evaluate("{const choice = document.querySelector('label.controls select'); choice.value = '3'; choice.dispatchEvent(new Event('change'))}")
        self.assertIn("50 images; average precision 25.00%", view.evaluate("document.querySelector('#evaluation').textContent"))
        self.assertIn("500 images", view.evaluate("document.querySelector('#evaluation').textContent"))
        view.evaluate("{const which = document.querySelector('#evaluation-which select'); which.value = 'best_evaluation';"
                      " which.dispatchEvent(new Event('change', {bubbles: true}))}")
        self.assertIn("400 images of the validation split after step 2", view.evaluate("document.querySelector('#evaluation').textContent"))
        # Markup in a name is text.
        self.assertIn(HOSTILE, view.evaluate("document.querySelector('#evaluation').textContent"))
        self.assertEqual(view.evaluate("document.querySelectorAll('script').length"), 6)
        self.assertIn("model.name", view.evaluate("document.querySelector('#config').textContent"))
        # Images far below the window are not loaded.
        view.evaluate("document.querySelector('.mistakes').scrollIntoView()")
        pictures = view.evaluate("[...document.querySelectorAll('.mistakes img')].map((image) => image.decode().then(() => image.naturalWidth))"
                                 ".reduce((all, one) => all.then((widths) => one.then((width) => [...widths, width])), Promise.resolve([]))")
        self.assertEqual(pictures, [32, 32] if HAS_IMAGES else [])
        # The keyboard moves along a chart, and the legend shows the values there.
        first_value = "document.querySelector('.charts .u-series:nth-child(3) .u-value').textContent"
        latest = view.evaluate(first_value)
        view.evaluate("document.querySelector('.plot').focus()")
        view.press("ArrowRight")
        view.wait_for(f"{first_value} !== {json.dumps(latest)}")

    @unittest.skipUnless(HAS_IMAGES, "built without OpenCV")
    def test_each_evaluation_has_the_pictures_of_its_own_mistakes(self):
        page = self.report(self.runs / "images").read_text()
        run = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL).group(1))["runs"][0]
        pictures = {}
        for which in ("evaluation", "best_evaluation"):
            for mistake in run[which]["mistakes"]:
                self.assertTrue(mistake["image"].startswith("data:image/jpeg;base64,"))
                pictures.setdefault(mistake["index"], set()).add(mistake["image"])
        # The first index occurs in both evaluations.
        self.assertEqual(sorted(pictures), [3, 399, 499])
        self.assertEqual([len(images) for images in pictures.values()], [1, 1, 1])
        self.assertEqual(len(set.union(*pictures.values())), 3)

    @unittest.skipUnless(HAS_IMAGES, "built without OpenCV")
    def test_heat_maps_of_mistakes(self):
        page = self.report(self.runs / "images", "--heatmap").read_text()
        run = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL).group(1))["runs"][0]
        # The checkpoint of step 2 exists, but not that of step 4.
        for mistake in run["best_evaluation"]["mistakes"]:
            self.assertTrue(mistake["heatmap"].startswith("data:image/jpeg;base64,"))
            self.assertNotEqual(mistake["heatmap"], mistake["image"])
        self.assertNotIn("images_note", run["best_evaluation"])
        self.assertTrue(all("image" in mistake and "heatmap" not in mistake for mistake in run["evaluation"]["mistakes"]))
        self.assertRegex(run["evaluation"]["images_note"],
                         r"^There are no heat maps: the checkpoint of this validation, .*/step_00000004.pt, is not there any more; see checkpoint.keep_last$")

    def make_run(self, folder, top1, losses=(), **settings):
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))
        lines = [{**START, "time": 1000, "steps_per_epoch": 10}]
        lines += [{"event": "train", "time": 1000 + step, "epoch": 0, "step": step, "loss": loss, "lr": 0.1} for step, loss in enumerate(losses, 1)]
        lines.append({"event": "validation", "time": 2000, "epoch": 0, "step": 10, "top1": top1})
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    @unittest.skipUnless(HAS_BROWSER, "no Chromium")
    def test_page_of_many_runs(self):
        sweep = self.folder / "fifty"
        for number in range(50):
            self.make_run(sweep / f"run{number}", number / 100, [9000, 2.0, 1.9, 1.8, 1.7], seed=number % 5, experiment=f"run{number}",
                          optimizer=f"{{name: sgd, lr: 0.0{number // 5 + 1}}}")
        view = self.open_browser()
        view.open(f"file://{self.report(*sorted(sweep.iterdir()))}", width=1400)
        view.wait_for("document.querySelectorAll('.charts canvas').length > 0")
        self.assertEqual(view.messages, [])
        self.assertIn("49.00% (run49, epoch 1, step 10)", view.evaluate("document.querySelector('#headline').textContent"))
        names = "[...document.querySelectorAll('#run-table table:first-of-type tbody th')].slice(0, 50).map((cell) => cell.textContent)"
        view.evaluate("[...document.querySelectorAll('#run-table thead button')].find((button) => button.textContent === 'Best').click()")
        view.evaluate("[...document.querySelectorAll('#run-table thead button')].find((button) => button.textContent.startsWith('Best')).click()")
        self.assertEqual(view.evaluate(names)[:2], ["run49", "run48"])
        # Ten learning rates with five seeds each: 45 to 49 %. The table names them, not the five runs;
        # its last line is of run5 to run9, the last in the order of their names.
        table = "[...document.querySelectorAll('#run-table table')].at(-1)"
        self.assertEqual(view.evaluate(f"{table}.querySelector('thead th').textContent"), "optimizer.lr")
        self.assertEqual(view.evaluate(f"{table}.querySelector('tbody tr:last-child').textContent"), "0.02" "5" "7.00% ± 1.58%")
        self.assertIn("47.00% ± 1.58%", view.evaluate("document.querySelector('#run-table').textContent"))
        # The loss has a logarithmic axis, because the first loss would otherwise flatten the curve.
        self.assertEqual(view.evaluate("charts.filter((chart) => chart.isLog).map((chart) => chart.metric)"), ["loss"])
        self.assertLessEqual(view.evaluate("document.documentElement.scrollWidth"), 1400)

    @unittest.skipUnless(HAS_BROWSER, "no Chromium")
    def test_runs_with_equal_seeds_are_no_repetitions(self):
        sweep = self.folder / "seeds"
        for name, seed, lr in (("a", 0, 0.1), ("b", 0, 0.1), ("c", 1, 0.2)):
            self.make_run(sweep / name, 0.5, seed=seed, optimizer=f"{{name: sgd, lr: {lr}}}")
        view = self.open_browser()
        view.open(f"file://{self.report(*sorted(sweep.iterdir()))}")
        view.wait_for("document.querySelector('#run-table table') !== null")
        text = view.evaluate("document.querySelector('#run-table').textContent")
        self.assertIn("50.00%", text)
        self.assertNotIn("Runs that differ only in the seed", text)

    def test_a_long_run_makes_a_small_page(self):
        folder = self.folder / "long"
        folder.mkdir()
        with open(folder / "metrics.jsonl", "w") as file:
            file.write(json.dumps({**START, "num_epochs": 1000, "steps_per_epoch": 100}) + "\n")
            for step in range(10, 100001, 10):
                head = {"time": step, "epoch": (step - 1) // 100, "step": step}
                values = {"loss": 99.5 if step == 50010 else 1 / step, "top1": 1 - 1 / step, "lr": 0.1 / step, "images_per_second": 1000 / 7 + step,
                          "data_wait": 1 / step, "queue_depth": 3.0, "memory_bytes": 10**9 + step}
                file.write(json.dumps({"event": "train", **head, **values}, separators=(",", ":")) + "\n")
                if step % 100 == 0:
                    file.write(json.dumps({"event": "validation", **head, "loss": 1 / step, "top1": 0.5, "top5": 0.9}) + "\n")
            file.write('{"event":"train","ti')  # being written
        page = self.report(folder)
        self.assertLess(page.stat().st_size, 2_000_000)
        data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL).group(1))
        self.assertIn(99.5, data["runs"][0]["train"]["loss"]["values"])

    def request(self, port, method="GET", path="/", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer, body

    def assert_not_held_up(self, report, port, path):
        """Clients that are slow or send without end delay neither other clients nor the end of the server."""
        def connect(text):
            client = socket.create_connection(("127.0.0.1", port), timeout=20)
            self.addCleanup(client.close)
            client.sendall(text.encode())
            return client

        for _ in range(100):
            connect("GET / HTTP/1.1\r\nHost: local")
        endless = connect("GET / HTTP/1.1\r\n")
        begin = time.monotonic()
        with self.assertRaises(OSError):
            for _ in range(100_000):
                endless.sendall(b"X: " + b"a" * 4000 + b"\r\n")
        connect(f"GET {path}data HTTP/1.1\r\nHost: localhost\r\n\r\n")  # reads nothing
        self.assertEqual(self.request(port, path=path)[0].status, 200)
        self.assertLess(time.monotonic() - begin, 5)
        peak = re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{report.pid}/status").read_text()).group(1)
        self.assertLess(int(peak), 500_000)

    def test_live(self):
        run_dir = self.folder / "live"
        training = subprocess.Popen([BINARY, *map(str, LINEAR), "training.epochs=1000000", "runtime.threads=1", "--run-dir", run_dir], cwd=ROOT, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(training.wait)
        self.addCleanup(training.kill)
        while not ((run_dir / "metrics.jsonl").exists() and b"validation" in (run_dir / "metrics.jsonl").read_bytes()):
            time.sleep(0.05)
        self.assertEqual(json.loads(trainer("runs", run_dir, "--json").stdout)[0]["state"], "running")
        report = subprocess.Popen([BINARY, "report", "--live", run_dir], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        self.addCleanup(report.communicate)
        self.addCleanup(report.kill)
        address = report.stdout.readline().strip()
        port, path = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/[0-9a-f]{64}/)", address).groups()
        port = int(port)

        if HAS_BROWSER:
            view = self.open_browser()
            view.open(address)
            steps = "data.runs[0].step"
            before = view.evaluate(steps)
            view.wait_for(f"{steps} > {before}")
            drawn = "charts[0].plot.data[0].at(-1)"
            view.wait_for(f"{drawn} > {before}")  # without a reload
            self.assertEqual(view.messages, [])
            self.assertEqual(set(view.requests), {address, f"{address}data"})

        training.send_signal(signal.SIGTERM)
        self.assertEqual(training.wait(timeout=60), 75)
        answer, body = self.request(port, path=f"{path}data")
        self.assertEqual((answer.status, json.loads(body)["runs"][0]["state"]), (200, "stopped"))
        subtitle = "document.querySelector('#subtitle').textContent"
        if HAS_BROWSER:
            view.wait_for("data.runs[0].state === 'stopped'")
            # From here on, all requests are answered with 304.
            view.evaluate("window.realFetch = fetch; window.fetch = () => Promise.reject(); null")
            view.wait_for(f"{subtitle}.startsWith('Not connected: trainer report has ended, or cannot be reached. Last update ')")
            view.evaluate("window.fetch = realFetch; null")
            view.wait_for(f"{subtitle}.startsWith('Live; last update ')")
        unchanged, body = self.request(port, path=f"{path}data", **{"If-None-Match": answer.getheader("ETag")})
        self.assertEqual((unchanged.status, body), (304, ""))
        many_ranges = "bytes=" + ",".join(["0-"] * 2600)
        for status, arguments in ((403, {"Host": "attacker.example"}), (403, {"Host": "127.0.0.1.attacker.example:80"}), (200, {"Host": "localhost:9"}),
                                  (403, {"path": "/"}), (403, {"path": "/data"}), (403, {"path": f"/{'0' * 64}/data"}), (200, {"Range": many_ranges}),
                                  (404, {"path": f"{path}metrics.jsonl"}), (404, {"path": f"{path}../../etc/passwd"}), (405, {"method": "POST"})):
            self.assertEqual(self.request(port, **{"path": path, **arguments})[0].status, status, arguments)
        self.assert_not_held_up(report, port, path)
        taken = trainer("report", "--live", run_dir, "--port", port)
        self.assertEqual((taken.returncode, taken.stderr), (2, f"error: --port {port}: another program uses this port, or this user may not use it; "
                                                               "choose another one, or omit --port\n"))
        report.send_signal(signal.SIGINT)
        begin = time.monotonic()
        self.assertEqual(report.wait(timeout=20), 0)
        self.assertLess(time.monotonic() - begin, 3)

        if HAS_BROWSER:
            again = subprocess.Popen([BINARY, "report", "--live", run_dir, "--port", str(port)], cwd=ROOT, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self.addCleanup(again.communicate)
            self.addCleanup(again.kill)
            self.assertNotEqual(again.stdout.readline().strip(), address)
            view.wait_for(f"{subtitle}.startsWith('Not connected: the server answered with status 403; if trainer report was started again, ')")


if __name__ == "__main__":
    unittest.main()
