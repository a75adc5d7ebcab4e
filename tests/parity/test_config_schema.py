"""The schema of `trainer config schema` and the program accept and refuse the same experiment files. TRAINER_BINARY is the program."""

import json
import pathlib
import sys
import unittest

import jsonschema
import ruamel.yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from program import ROOT, FolderCase, trainer  # noqa: E402

BASE = {"experiment": "x", "model": {"name": "resnet20"}, "dataset": {"name": "image_folder", "root": "data", "train_transforms": ["random_horizontal_flip", {"resize": {"size": [8, 8]}}],
                                                              "validation_transforms": [{"resize": {"size": [8, 8]}}]},
        "optimizer": {"name": "sgd", "lr": 0.1}, "training": {"epochs": 1}}
# Values by their paths, set one at a time: first those that the program refuses, then those that it accepts.
WRONG = [
    ("seed", "many"), ("seed", 1.5), ("experiment", []), ("output_dir", None), ("plugins", "libmine.so"), ("colour", 1), ("model", "resnet20"), ("model", []),
    ("model.name", "resnet19"), ("model.name", 5), ("model.depth", 20), ("model.num_classes", -1), ("model.layers", []), ("dataset.name", "imagefolder"),
    ("dataset.mode", "colour"), ("dataset.exif_orientation", True), ("dataset.root", []), ("dataset.train", "x.csv"), ("dataset.validation_split", 1.0),
    ("dataset.validation_split", "some"), ("dataset.stratify", "yes"), ("dataset.train_transforms", "resize"), ("dataset.train_transforms", [{"resiz": {"size": 8}}]),
    ("dataset.train_transforms", ["random_crop"]), ("dataset.train_transforms", [{"resize": {"size": 0}}]), ("dataset.train_transforms", [{"resize": {"size": 8}, "pad": {"padding": 1}}]),
    ("dataset.train_transforms", [{"random_horizontal_flip": {"p": 1.5}}]), ("dataset.train_transforms", [{"random_horizontal_flip": 0.5}]), ("dataset.split", 0.2), ("dataset.split", {"validation": 2}),
    ("dataset.split", {"part": 0.1}), ("dataset.on_error", "ignore"), ("dataloader.batch_size", 0), ("dataloader.num_workers", -1), ("dataloader.sampler", "weighted"),
    ("dataloader.drop_last", 1), ("loss", {"name": "hinge"}), ("loss", {"name": "cross_entropy", "label_smoothing": 2}),
    ("loss", {"label_smoothing": "much"}), ("optimizer.lr", "fast"), ("optimizer.lr", -1), ("optimizer.betas", [0.9, 0.99]), ("optimizer.name", None),
    ("lr_scheduler", {"name": "cosine", "warmup": 3}), ("training.epochs", 0), ("training.epochs", "ten"), ("training.ema", {"decay": 1.5}), ("training.ema", 0.999),
    ("runtime.device", "gpu"), ("runtime.dtype", "half"), ("runtime.threads", 0), ("amp.enabled", "maybe"), ("amp", 5), ("distributed.backend", "mpi"), ("validation.every_epochs", 0),
    ("checkpoint.monitor", 5), ("logging.every_steps", 0), ("logging", []), ("task", {"name": "detection"}), ("training.repeat", 2),
]
RIGHT = [
    ("experiment", 17), ("plugins", []), ("amp", None), ("logging", {}), ("dataset.split", None), ("dataset.split", {}), ("dataset.split", {"validation": 0.3, "group": "(p[0-9]+)_"}),
    ("dataset.validation_split", "auto"), ("dataset.mode", "grey"), ("optimizer", {"lr": 0.1}), ("dataset.train_transforms", [{"resize": {"size": [8, 9]}}, {"center_crop": {"size": 8}}]),
    ("dataset.train_transforms", [{"random_horizontal_flip": None}, {"resize": {"longest": 8}}, {"center_crop": {"size": 8}}]),
    ("dataset.batch_transforms", ["mixup", {"cutmix": {"alpha": 0.5}}]), ("loss", {"label_smoothing": 0.1}), ("loss", {"name": "cross_entropy", "class_weights": "auto"}),
    ("training.ema", {"decay": 0.99}), ("training.ema", None), ("training.max_grad_norm", None), ("amp.enabled", "auto"), ("amp.enabled", True), ("validation.every_epochs", 2),
    ("dataloader.sampler", {"name": "class_balanced"}), ("lr_scheduler", {"name": "cosine", "warmup_epochs": 0}), ("optimizer.lr", 1),
    ("model", {"name": "layers", "layers": ["flatten", {"sequence": [{"linear": {"features": 8}}, "relu"]}, {"linear": {"name": "head"}}]}),
]


def changed(path, value):
    experiment = json.loads(json.dumps(BASE))
    *sections, key = path.split(".")
    section = experiment
    for name in sections:
        section = section.setdefault(name, {})
    section[key] = value
    return experiment


class ConfigSchemaTest(FolderCase):
    @classmethod
    def setUpClass(cls):
        run = trainer("config", "schema")
        assert run.returncode == 0, run.err
        schema = json.loads(run.out)
        jsonschema.Draft7Validator.check_schema(schema)
        cls.validator = jsonschema.Draft7Validator(schema)

    def assert_valid(self, experiment):
        errors = [f"{error.json_path}: {error.message}" for error in self.validator.iter_errors(experiment)]
        self.assertEqual(errors, [])

    def taken_by_program(self, experiment):
        path = self.folder / "x.yaml"
        path.write_text(json.dumps(experiment))
        for name in ("a", "b"):
            (self.folder / "data" / name).mkdir(parents=True, exist_ok=True)
            (self.folder / "data" / name / "1.png").touch()
        run = trainer("config", "show", "--config", path, cwd=self.folder)
        return run.returncode == 0, run.err

    def test_shipped_configs(self):
        configs = sorted((ROOT / "configs").glob("*.yaml"))
        self.assertGreater(len(configs), 10)
        for config in configs:
            with self.subTest(config.name):
                self.assert_valid(ruamel.yaml.YAML(typ="safe", pure=True).load(config))

    def test_files_of_init_and_resolved_files(self):
        for name in "ab":
            (self.folder / "data" / name).mkdir(parents=True)
            for i in range(3):
                (self.folder / "data" / name / f"{i}.ppm").write_bytes(b"P6 9 8 255\n" + bytes(3 * 9 * 8))
        self.assertEqual(trainer("init", "--data", "data", cwd=self.folder).returncode, 0)
        first_line = (self.folder / "experiment.yaml").read_text().split("\n")[0]
        schema = self.folder / first_line.removeprefix("# yaml-language-server: $schema=")
        self.assertEqual(schema.read_text(), trainer("config", "schema").out)
        reader = ruamel.yaml.YAML(typ="safe", pure=True)
        self.assert_valid(reader.load(self.folder / "experiment.yaml"))
        run = trainer("config", "show", "--config", "experiment.yaml", "training.ema={decay: 0.9}", "dataset.split={}", "dataset.validation_split=0", cwd=self.folder)
        self.assertEqual(run.returncode, 0, run.err)
        self.assert_valid(reader.load(run.out))

    def test_wrong_files_are_refused_by_both(self):
        self.assertGreaterEqual(len(WRONG), 50)
        for path, value in WRONG:
            with self.subTest(path=path, value=value):
                experiment = changed(path, value)
                self.assertTrue(list(self.validator.iter_errors(experiment)), "by the schema")
                is_taken, _ = self.taken_by_program(experiment)
                self.assertFalse(is_taken, "by the program")

    def test_right_files_are_taken_by_both(self):
        self.assert_valid(BASE)
        for path, value in RIGHT:
            with self.subTest(path=path, value=value):
                self.assert_valid(changed(path, value))
                is_taken, error = self.taken_by_program(changed(path, value))
                self.assertTrue(is_taken, error)

    def test_files_with_a_base(self):
        self.assert_valid({"base": ["a.yaml", "b.yaml"], "optimizer": {"betas": [0.9, 0.99]}})
        self.assertTrue(list(self.validator.iter_errors({"base": "a.yaml", "optimiser": {"lr": 0.1}})))


if __name__ == "__main__":
    unittest.main()
