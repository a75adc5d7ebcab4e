"""Checks bills of materials against the schema of CycloneDX 1.6, with the Python environment of scripts/setup.sh --parity:
check_cyclonedx.py FILE..."""

import importlib.resources
import json
import pathlib
import sys

import jsonschema
import referencing


def validator():
    folder = importlib.resources.files("cyclonedx.schema") / "_res"
    names = [f"{name}.SNAPSHOT.schema.json" for name in ("bom-1.6", "spdx", "jsf-0.82")]
    schemas = [json.loads((folder / name).read_text()) for name in names]
    # The first one refers to the others by their file names, relative to itself.
    registry = referencing.Registry().with_contents([(prefix + name, schema) for name, schema in zip(names, schemas)
                                                     for prefix in ("", "http://cyclonedx.org/schema/")])
    return jsonschema.Draft7Validator(schemas[0], registry=registry)


def check(file):
    document = json.loads(pathlib.Path(file).read_text())
    validator().validate(document)
    return document


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        check(argument)
