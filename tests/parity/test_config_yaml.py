"""The resolved experiment file means the same to PyYAML (YAML 1.1), to ruamel.yaml (YAML 1.2) and to the program itself."""

import pathlib
import sys
import unittest

import ruamel.yaml
import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from program import LINEAR, ROOT, ProgramCase, trainer  # noqa: E402

# Texts, most of which YAML 1.1 or 1.2 would read as something else or refuse if they were not quoted.
TEXTS = ("no", "Yes", "ON", "off", "y", "N", "True", "0123", "12:30:00", "1_000", "1e5", "-1.5", "+1", ".5", "0x1f", "0b1", "0o7", "2026-01-31",
         "2026-01-31 12:00:00", "~", "null", "=", "<<", ".inf", "-.INF", ".nan", "-", "---", "...", "a: b", "a #b", "- a", "[a]", "{a}", "*a", "&a",
         "!a", "|", ">", "%a", "@a", "`a", "'a'", '"a"', "a\\b", " a", "a ", "é", "日本", "a\u2028b\u2029c", "\ufeffa", "a\ufffe\uffff", "😀", "a:b", "a:", "#a", "?", "? a",
         ",", "a,b", "a'b", "1.0.0", "1e", "e5", "0.", "1,000", "190:20:30", "0o", "None", "NaN", "inf")


class ConfigYamlTest(ProgramCase):
    def shown(self, *args):
        run = trainer("config", "show", "--config", *args)
        self.assertEqual(run.returncode, 0, run.err)
        return run.out

    def values_of(self, text):
        """Checks that all readers return the same value, and returns it."""
        values = yaml.safe_load(text)
        self.assertEqual(values, ruamel.yaml.YAML(typ="safe", pure=True).load(text), text)
        path = self.folder / "again.yaml"
        path.write_text(text)
        self.assertEqual(self.shown(path), text)
        return values

    def test_all_configs(self):
        for folder in ("train/cat", "train/dog", "val/cat", "val/dog"):
            (self.folder / folder).mkdir(parents=True)
            (self.folder / folder / "1.jpg").touch()
        configs = sorted((ROOT / "configs").glob("*.yaml"))
        self.assertTrue(configs)
        for config in configs:
            with self.subTest(config.name):
                self.values_of(self.shown(config, "output_dir=0123", f"dataset.root={self.folder}" if config.name in ("imagefolder.yaml", "finetune.yaml") else "seed=1"))

    def test_numbers(self):
        values = self.values_of(self.shown(LINEAR, "optimizer={name: adamw, lr: 1e-5}", "training.max_grad_norm=1e20", "lr_scheduler={name: reduce_on_plateau}"))
        self.assertEqual((values["optimizer"]["lr"], values["optimizer"]["eps"], values["training"]["max_grad_norm"]), (1e-5, 1e-8, 1e20))
        self.assertEqual(values["lr_scheduler"]["threshold"], 1e-4)

    def test_texts(self):
        # \u has four digits, so a character above U+FFFF is written as it is.
        escaped = ("".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in text) for text in TEXTS)
        texts = ", ".join(f'"{text}"' for text in escaped)
        values = self.values_of(self.shown(LINEAR, "experiment=no", f"model.freeze=[{texts}]"))
        self.assertEqual((values["experiment"], values["model"]["freeze"]), ("no", list(TEXTS)))


if __name__ == "__main__":
    unittest.main()
