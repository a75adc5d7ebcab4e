"""Published weights by name: download, the folder that runs share, and networks that start with them. The test's own server replaces
torchvision's. TRAINER_BINARY is the program; TRAINER_OPENCV is 0 if it was built without OpenCV."""

import base64
import gzip
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import ssl
import struct
import subprocess
import sys
import threading
import time
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "testing"))
import equal_runs  # noqa: E402
from program import FolderCase, start, trainer  # noqa: E402

RUN = ["dataset={name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 32, num_validation: 8}", "dataset.train_transforms=[]",
       "dataset.validation_transforms=[]", "dataloader={batch_size: null, global_batch_size: 16}", "training={epochs: 1, steps: null}", "logging.every_steps=1",
       "runtime={device: cpu, threads: 1}"]


def safetensors():
    """A file that can be read without a checksum."""
    header = json.dumps({"a": {"dtype": "U8", "shape": [1000], "data_offsets": [0, 1000]}}).encode()
    return struct.pack("<Q", len(header)) + header + os.urandom(1000)


class Server:
    """Serves `body` under every name; `answer` handles the requests, which are numbered from 0. With a certificate, the server uses
    HTTPS."""

    def __init__(self, case, body, certificate=None):
        self.body, self.requests, self.answer = body, [], lambda handler, number: handler.send_body()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                server.requests.append((self.path, self.headers.get("Range")))
                server.answer(self, len(server.requests) - 1)

            def send_body(self, sent=None):
                given = self.headers.get("Range")
                begin = int(given.removeprefix("bytes=").split("-")[0]) if given else 0
                if begin >= len(server.body):
                    return self.send_error(416)
                self.send_response(206 if given else 200)
                self.send_header("Content-Length", str(len(server.body) - begin))
                if given:
                    self.send_header("Content-Range", f"bytes {begin}-{len(server.body) - 1}/{len(server.body)}")
                self.end_headers()
                self.wfile.write(server.body[begin:sent])

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.url = f"http{'' if certificate is None else 's'}://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        case.addCleanup(self.http.server_close)
        case.addCleanup(self.http.shutdown)


class WeightsTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.server = Server(self, os.urandom(300_000))
        self.name = f"net-{hashlib.sha256(self.server.body).hexdigest()[:16]}.pth"
        self.url = f"{self.server.url}/{self.name}"
        self.home = self.folder / "home"
        self.file = self.home / "weights" / self.name

    def trainer(self, *args):
        return trainer(*args, env={**os.environ, "TRAINER_HOME": str(self.home)})

    def ran(self, *args):
        return super().ran(*args, env={**os.environ, "TRAINER_HOME": str(self.home)})

    def fetch(self, *args):
        return self.trainer("weights", "fetch", *(args or [self.url]))

    def serve_own_weights(self):
        """Trains, and serves the network. Returns the experiment and the file."""
        config, weights = self.folder / "x.yaml", self.folder / "own.pth"
        config.write_text("experiment: x\nmodel: {name: demo_conv}\n")
        self.ran("--config", config, *RUN, "--run-dir", self.folder / "first")
        self.ran("export", "--checkpoint", self.folder / "first", "--format", "state_dict", "--output", weights)
        self.server.body = weights.read_bytes()
        return config, weights

    def assert_fetched(self, run):
        self.assertEqual((run.returncode, run.out), (0, f"{self.file}\n"), run.err)
        self.assertEqual(self.file.read_bytes(), self.server.body)

    def assert_refused(self, run, reason, url=None):
        self.assertEqual(run.returncode, 3, run.err)
        self.assertIn(f"cannot download {url or self.url}: {reason}; try again, or download it on another host and copy it to {self.file}", run.err)
        self.assertFalse(self.file.exists())

    def test_fetched_once(self):
        self.assert_fetched(self.fetch())
        self.assert_fetched(self.fetch())
        self.assertEqual(len(self.server.requests), 1)
        self.assertEqual(os.listdir(self.home / "weights"), [self.name])

    def test_a_file_on_this_host(self):
        (self.folder / self.name).write_bytes(self.server.body)
        self.assert_fetched(self.fetch(f"file://{self.folder}/{self.name}"))

    def test_a_redirect(self):
        def redirect(handler, number):
            if number > 0:
                return handler.send_body()
            handler.send_response(302)
            handler.send_header("Location", "/elsewhere")
            handler.end_headers()

        self.server.answer = redirect
        self.assert_fetched(self.fetch())

    def test_a_cut_is_continued(self):
        self.server.answer = lambda handler, number: handler.send_body(100_000 if number == 0 else None)
        self.assert_refused(self.fetch(), "the connection was closed after 97.7 KiB")
        self.assert_fetched(self.fetch())
        self.assertEqual([given for _, given in self.server.requests], [None, "bytes=100000-"])

    def test_a_server_that_cannot_continue(self):
        def whole(handler, number):
            if number == 0:
                return handler.send_body(100_000)
            del handler.headers["Range"]
            handler.send_body()

        self.server.answer = whole
        self.assert_refused(self.fetch(), "the connection was closed after 97.7 KiB")
        self.assert_fetched(self.fetch())

    def test_a_beginning_of_another_file(self):
        self.file.parent.mkdir(parents=True)
        (self.file.parent / f".{self.name}.partial").write_bytes(b"x" * 1000)
        self.assert_fetched(self.fetch())
        (self.file.parent / f".{self.name}.partial").write_bytes(b"x" * 400_000)
        self.file.unlink()
        self.assert_fetched(self.fetch())

    def test_other_bytes(self):
        good, self.server.body = self.server.body, os.urandom(300_000)
        found = hashlib.sha256(self.server.body).hexdigest()[:16]
        wanted = self.name.removeprefix("net-").removesuffix(".pth")
        self.assert_refused(self.fetch(), f"the downloaded file has the SHA256 sum {found} instead of {wanted}: it is damaged or a different file")
        self.server.body = good
        self.assert_fetched(self.fetch())

    def test_what_the_server_does_not_have(self):
        self.server.answer = lambda handler, number: handler.send_error(404)
        self.assert_refused(self.fetch(), "the server answered with HTTP status 404")
        self.server.answer = lambda handler, number: handler.send_body()
        self.assert_fetched(self.fetch())

    def test_certificates_where_another_distribution_has_them(self):
        if os.geteuid() != 0 or any(shutil.which(program) is None for program in ("unshare", "openssl")):
            raise unittest.SkipTest("needs root for a mount namespace, unshare and openssl")
        certificate = self.folder / "certificate.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=IP:127.0.0.1", "-keyout", certificate, "-out", self.folder / "public.pem"], check=True, capture_output=True)
        with certificate.open("a") as both:
            both.write((self.folder / "public.pem").read_text())
        url = f"{Server(self, self.server.body, certificate).url}/{self.name}"
        # The only certificates are in the file that openSUSE uses; the mount namespace hides those of this machine.
        place = 'mount -t tmpfs none /etc/ssl && { [ -z "$1" ] || cp "$1" /etc/ssl/ca-bundle.pem; } && shift && exec "$@"'
        for file, code in (("", 3), (self.folder / "public.pem", 0)):
            run = subprocess.run(["unshare", "-m", "sh", "-c", place, "sh", file, os.environ["TRAINER_BINARY"], "weights", "fetch", url],
                                 env={**os.environ, "TRAINER_HOME": str(self.home)}, capture_output=True, text=True)
            self.assertEqual(run.returncode, code, run.stderr)
        self.assertEqual(self.file.read_bytes(), self.server.body)

    def test_two_processes_fetch_it_once(self):
        def slow(handler, number):
            time.sleep(1)
            handler.send_body()

        self.server.answer = slow
        runs = [start("weights", "fetch", self.url, env={**os.environ, "TRAINER_HOME": str(self.home)}) for _ in range(2)]
        for run in runs:
            run.out, run.err = run.communicate(timeout=60)
            self.assert_fetched(run)
        self.assertEqual(len(self.server.requests), 1)

    def test_a_mirror(self):
        run = self.fetch("resnet18", "--mirror", self.server.url)
        self.assertEqual(run.returncode, 3)
        self.assertEqual(self.server.requests, [("/resnet18-f37072fd.pth", None)])
        self.assertIn("instead of f37072fd", run.err)

    def test_verify(self):
        self.assert_fetched(self.fetch())
        own = self.file.parent / "own.pth"
        own.write_bytes(safetensors())
        run = self.trainer("weights", "verify")
        self.assertEqual((run.returncode, run.out), (0, f"good: {self.file}\nno checksum in its name: {own}\n2 files in {self.file.parent}\n"))
        own.write_bytes(b"<html>")
        run = self.trainer("weights", "verify")
        self.assertEqual(run.returncode, 3)
        self.assertIn(f"bad: {own}\n     its content: is an HTML page, ", run.out)
        self.file.write_bytes(self.server.body[1:])
        run = self.trainer("weights", "verify")
        self.assertEqual(run.returncode, 3)
        self.assertIn(f"bad: {self.file}\n     its SHA-256 checksum does not begin with {self.name[4:20]}; remove the file, ", run.out)

    def test_a_damaged_file(self):
        self.assert_fetched(self.fetch())
        self.file.write_bytes(self.server.body[1:])
        run = self.fetch()
        self.assertEqual(run.returncode, 3)
        self.assertIn(f"{self.file}: its SHA-256 checksum does not begin with {self.name[4:20]}; remove the file, so that it is downloaded again from {self.url}", run.err)

    def test_what_a_server_sends_without_a_sum_is_read_before_it_is_kept(self):
        url, good = f"{self.server.url}/own.pth", safetensors()
        for body, reason in ((b"<!DOCTYPE html><html>busy</html>", "is an HTML page, such as a web server sends in case of an error; download the file itself"),
                             (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "is a pointer of Git LFS in place of the file; fetch the file with `git lfs pull`"),
                             (gzip.compress(good), "is compressed with gzip; decompress it with gunzip"),
                             (good[:-1], "; the file is damaged: copy it again from an intact file, or save it again")):
            self.server.body = body
            run = self.fetch(url)
            self.assertEqual(run.returncode, 3, run.err)
            self.assertIn(f"cannot download {url}: the server sent ", run.err)
            self.assertIn(reason, run.err)
            self.assertEqual(os.listdir(self.home / "weights"), [])
        self.server.body = good
        asked = []
        self.server.answer = lambda handler, number: (asked.append(handler.headers["Accept-Encoding"]), handler.send_body())
        run = self.fetch(url)
        self.assertEqual((run.returncode, asked), (0, ["identity"]), run.err)
        # What an earlier version has kept.
        kept = pathlib.Path(run.out.strip())
        kept.write_bytes(b"<html>busy</html>")
        run = self.fetch(url)
        self.assertEqual(run.returncode, 3)
        self.assertIn(f"{kept}: its content: is an HTML page, ", run.err)
        self.assertIn(f"; remove the file, so that it is downloaded again from {url}\n", run.err)

    def test_files_of_the_same_name_without_a_sum(self):
        paths = []
        for number in range(2):
            self.server.body = safetensors()
            run = self.fetch(f"{self.server.url}/{number}/model.safetensors?download=true")
            self.assertEqual(run.returncode, 0, run.err)
            paths.append(pathlib.Path(run.out.strip()))
            self.assertEqual(paths[-1].read_bytes(), self.server.body)
        self.assertNotEqual(*paths)
        # The beginning of a file that an interrupted download has left is not continued, because it may belong to another file.
        paths[1].rename(paths[1].with_name(f".{paths[1].name}.partial"))
        run = self.fetch(f"{self.server.url}/1/model.safetensors?download=true")
        self.assertEqual(paths[1].read_bytes(), self.server.body)
        self.assertEqual({given for _, given in self.server.requests}, {None})
        # A number of eight digits is a date, not a checksum.
        self.assertEqual(self.fetch(f"{self.server.url}/mine-20260117.pth").returncode, 0)

    def test_list(self):
        run = self.trainer("weights", "list")
        self.assertRegex(run.out, r"\nresnet50 +imagenet1k_v2 \(default\) +80\.86 +98 MiB +224  no\n")
        self.assertIn(f"The cache is {self.home}/weights.", run.out)

    def test_validate_names_the_download(self):
        config = self.folder / "x.yaml"
        config.write_text("experiment: x\nmodel: {name: resnet50, weights: default}\n")
        run = self.ran("validate", "--config", config, *RUN)
        self.assertIn(f"note: model.weights: resnet50-11ad3fa6.pth is not in {self.home}/weights; training downloads it from "
                      "https://download.pytorch.org/models/resnet50-11ad3fa6.pth\n", run.out)

    def test_refused_names(self):
        for name, message in (("resnet51", 'there are no weights "resnet51"; did you mean "resnet50"?; `trainer weights list` shows all'),
                              ("resnet50:v1", 'there are no weights "resnet50:v1"')):
            run = self.fetch(name)
            self.assertEqual(run.returncode, 2)
            self.assertIn(message, run.err)
        for model, message in (
                ("{name: resnet20, weights: default}", "model.weights: there are no published weights of resnet20; `trainer weights list` shows"),
                ("{name: resnet50, weights: v1}", 'model.weights: "v1" is neither one of imagenet1k_v2, imagenet1k_v1 nor the URL of a file (https://… or file:///…) nor the path of a folder (./…); model.init_from reads a file by its path'),
                ("{name: resnet50, weights: default, init_from: x.pt}", "model.weights: given together with model.init_from; keep one of them"),
                ("{name: resnet50, weights: default, weights_mirror: /x}", 'model.weights_mirror: "/x" is not a URL; write https://'),
                ("{name: resnet50, weights: https://x.invalid/}", 'model.weights: the URL "https://x.invalid/" does not end with the name of a file; add the name'),
                ("{name: resnet50, weights: https://x.invalid/x.pth, weights_mirror: file:///x}", "model.weights_mirror: has no effect if model.weights is a URL"),
                ("{name: resnet50, weights: default, in_channels: 1}", "model.weights: published weights need images with 3 channels, but those of synthetic have 1; remove this key"),
                ("{name: resnet50, weights_mirror: file:///x}", "model.weights_mirror: has no effect without model.weights; set model.weights, or remove it")):
            config = self.folder / "x.yaml"
            config.write_text(f"experiment: x\nmodel: {model}\n")
            run = trainer("validate", "--config", config, *RUN)
            self.assertEqual(run.returncode, 2, run.out)
            self.assertIn(message, run.err)

    def test_refused_folders(self):
        folder = self.folder / "hub"
        (folder / "weights").mkdir(parents=True)

        def refusal(model="resnet18", **config):
            (folder / "config.json").write_text(json.dumps(config))
            (self.folder / "x.yaml").write_text(f"experiment: x\nmodel: {{name: {model}, weights: {folder}}}\n")
            run = trainer("validate", "--config", self.folder / "x.yaml", *RUN)
            self.assertEqual(run.returncode, 2, run.out)
            return run.err

        self.assertIn(f"model.weights: {folder}: config.json does not name one of timm's networks (\"architecture\"); model.init_from reads a file\n", refusal(a=1))
        self.assertIn("its weights are those of timm's resnet50, but resnet18 is timm's resnet18; choose the network of these weights\n", refusal(architecture="resnet50"))
        self.assertIn("timm has no network that computes the same as mobilenet_v3_large; model.init_from reads a file\n",
                      refusal("mobilenet_v3_large", architecture="mobilenetv3_large_100"))
        self.assertIn("has neither model.safetensors nor pytorch_model.bin; download one of them into it\n", refusal(architecture="resnet18"))
        (folder / "model.safetensors").write_bytes(b"")
        self.assertIn("config.json: crop_pct is 0, not a number from 0.1 to 1; correct it\n", refusal(architecture="resnet18", pretrained_cfg={"crop_pct": 0}))
        self.assertIn("config.json: mean is not a list of three numbers; correct it\n", refusal(architecture="resnet18", pretrained_cfg={"mean": [0, 1, "x"]}))
        (folder / "config.json").unlink()
        for weights, message in ((folder, "has no config.json; give the folder of a network of timm, as the Hugging Face Hub has it\n"),
                                 ("./nowhere", "model.weights: ./nowhere: there is no such folder; check the path\n")):
            (self.folder / "x.yaml").write_text(f"experiment: x\nmodel: {{name: resnet18, weights: {weights}}}\n")
            self.assertIn(message, trainer("validate", "--config", self.folder / "x.yaml", *RUN).err)

    def test_secrets_of_a_url_are_only_in_its_request(self):
        config, _ = self.serve_own_weights()
        asked = []
        self.server.answer = lambda handler, number: (asked.append((handler.path, handler.headers["Authorization"])), handler.send_body())
        address = self.server.url.removeprefix("http://")
        secret, shown = f"http://bob:PASSW0RD@{address}/own.pth?token=SECRET1", f"http://***@{address}/own.pth?***"
        train = [*RUN, "--run-dir", self.folder / "second"]
        run = self.ran("launch", "--nproc-per-node", 2, "--config", config, *train, f"model.weights={secret}")
        self.assertEqual(asked, [("/own.pth?token=SECRET1", "Basic " + base64.b64encode(b"bob:PASSW0RD").decode())])
        self.assertIn(f"downloading {shown} to ", run.err)
        outputs = [run.out, run.err]
        # The files of the run are enough to continue it, to use its network, and for a report, but not for another download.
        stored = self.folder / "second" / "config.yaml"
        run = self.ran("--config", stored, "--run-dir", self.folder / "second", "training.epochs=2")
        self.assertIn("continues from step 2", run.err)
        for command in (["eval", "--checkpoint", self.folder / "second"], ["report", self.folder / "second", "--output", self.folder / "page.html"],
                        ["validate", "--config", stored], ["weights", "verify"]):
            run = self.ran(*command)
            outputs += [run.out, run.err]
        run = self.trainer("--config", stored, "--run-dir", self.folder / "third")
        self.assertEqual(run.returncode, 2, run.err)
        self.assertIn(f"error: {shown}: in this URL, *** stands for a user name, password or query, which files of runs do not contain; write them again\n", run.err)
        for key in ("model.weights", "model.weights_mirror", "model.name"):
            run = self.trainer("validate", "--config", config, *RUN, f"{key}={secret}/")
            outputs += [run.out, run.err]
        # A program that receives the events cannot be given secrets that the file does not contain.
        run = self.trainer("validate", "--config", config, *RUN, f"logging.command=[log, '{shown}']")
        self.assertIn("logging.command: in its URL, *** stands for a user name, password or query", run.err)
        self.assertEqual(len(asked), 1)
        files = [file for file in self.folder.rglob("*") if file.is_file() and not file.is_symlink()]
        for text in [*(file.read_bytes() for file in files), *(output.encode() for output in outputs)]:
            self.assertNotIn(b"PASSW0RD", text)
            self.assertNotIn(b"SECRET1", text)
        # Without a query, the file is found in the cache under the same name.
        self.assertEqual(self.fetch(f"http://bob:PASSW0RD@{address}/own.pth").out, self.fetch(f"http://***@{address}/own.pth").out)

    def test_a_training_begins_with_them(self):
        config, exported = self.serve_own_weights()
        url = f"{self.server.url}/demo-{hashlib.sha256(self.server.body).hexdigest()[:16]}.pth"
        # The training is the same as with the file itself; afterwards, the run needs neither the server nor the file.
        by_file = self.trainer("--config", config, *RUN, "--run-dir", self.folder / "file", f"model.init_from={exported}")
        by_name = self.trainer("launch", "--nproc-per-node", 1, "--config", config, *RUN, "--run-dir", self.folder / "name", f"model.weights={url}")
        self.assertEqual((by_file.returncode, by_name.returncode), (0, 0), by_name.err)
        results = [equal_runs.results_of(self.folder / name)[0] for name in ("file", "name")]
        self.assertEqual(*results)
        self.assertEqual(len(self.server.requests), 1)
        evaluated = trainer("eval", "--checkpoint", self.folder / "name")
        self.assertEqual(evaluated.returncode, 0, evaluated.err)
        # With another number of classes, all weights but those of the last layer are used.
        other = [value.replace("num_classes: 10", "num_classes: 4") for value in RUN]
        run = self.ran("--config", config, *other, "--run-dir", self.folder / "other", f"model.weights={url}")
        self.assertRegex(run.err, r"; the last layer \(.*weight, .*bias\) starts with random values, because it has 4 outputs in this experiment")


if __name__ == "__main__":
    import unittest
    unittest.main()
