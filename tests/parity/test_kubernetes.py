"""The manifests of scripts/kubernetes are valid for the schemas of Kubernetes and of Kubeflow's training operator; unknown keys are
errors."""

import ast
import copy
import importlib.metadata
import pathlib
import re
import unittest

import jsonschema
import kubernetes_validate
import yaml

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "kubernetes"
VERSION = "1.30"
OPERATOR = importlib.metadata.distribution("kubeflow-training").locate_file("kubeflow/training/models")


def validate(resource):
    kubernetes_validate.validate(resource, VERSION, strict=True)


def operator_keys(model):
    """The keys of one of the operator's types and the types of their values, parsed from the source of its Python client, which cannot be
    imported without the client of Kubernetes."""
    source = (OPERATOR / f"{re.sub('(?<!^)(?=[A-Z])', '_', model).lower()}.py").read_text()
    tables = {node.targets[0].id: ast.literal_eval(node.value) for node in ast.walk(ast.parse(source))
              if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("attribute_map", "openapi_types")}
    return {key: tables["openapi_types"][attribute] for attribute, key in tables["attribute_map"].items()}


def validate_for_operator(value, kind):
    if of_each := re.fullmatch(r"dict\(str, (\w+)\)", kind):
        for part in value.values():
            validate_for_operator(part, of_each[1])
    elif kind == "V1PodTemplateSpec":
        validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, **value})
    elif kind.startswith("Kubeflow"):
        known = operator_keys(kind)
        for key, part in value.items():
            if key not in known:
                raise jsonschema.ValidationError(f"{kind} has no {key}")
            validate_for_operator(part, known[key])
    elif kind in ("int", "str") and type(value).__name__ != kind:
        raise jsonschema.ValidationError(f"{value!r} is not a value of type {kind}")


class KubernetesTest(unittest.TestCase):
    def setUp(self):
        self.service, self.job = yaml.safe_load_all((FOLDER / "job.yaml").read_text())

    def test_the_indexed_job(self):
        validate(self.service)
        validate(self.job)
        spec = self.job["spec"]
        [container] = spec["template"]["spec"]["containers"]
        args = container["args"]
        self.assertEqual(spec["completions"], spec["parallelism"])
        # Kubernetes accepts podFailurePolicy only with this restartPolicy; the schemas do not contain this rule.
        self.assertEqual(spec["template"]["spec"]["restartPolicy"], "Never")
        final = spec["podFailurePolicy"]["rules"][0]
        self.assertEqual((final["action"], final["onExitCodes"]["values"]), ("FailJob", [2, 3, 5]))
        self.assertEqual(final["onExitCodes"]["containerName"], container["name"])
        self.assertEqual(args[args.index("--nnodes") + 1], str(spec["completions"]))
        # The first pod's name in the domain of the service.
        self.assertEqual(args[args.index("--master-addr") + 1], f"{self.job['metadata']['name']}-0.{self.service['metadata']['name']}")
        self.assertEqual(spec["template"]["spec"]["subdomain"], self.service["metadata"]["name"])
        self.assertEqual(self.service["spec"]["selector"]["job-name"], self.job["metadata"]["name"])

    def test_a_wrong_key_is_found(self):
        wrong = copy.deepcopy(self.job)
        wrong["spec"]["template"]["spec"]["containers"][0]["livenessProbes"] = {}
        with self.assertRaises(jsonschema.ValidationError):
            validate(wrong)

    def test_the_pytorch_job(self):
        job = yaml.safe_load((FOLDER / "pytorchjob.yaml").read_text())
        validate_for_operator(job, "KubeflowOrgV1PyTorchJob")
        self.assertEqual((job["apiVersion"], job["kind"]), ("kubeflow.org/v1", "PyTorchJob"))
        replicas = job["spec"]["pytorchReplicaSpecs"]
        self.assertEqual(set(replicas), {"Master", "Worker"})
        for replica in replicas.values():
            self.assertIn(replica["restartPolicy"], ("Always", "ExitCode", "Never", "OnFailure"))
            self.assertEqual(replica["template"]["spec"]["containers"][0]["name"], "pytorch")
        for place, key, wrong in ((job["spec"], "replicas", 1), (replicas["Worker"], "restart", ""), (replicas["Worker"], "replicas", "7")):
            with self.subTest(key), self.assertRaises(jsonschema.ValidationError):
                place[key] = wrong
                validate_for_operator(job, "KubeflowOrgV1PyTorchJob")
            place.pop(key)


if __name__ == "__main__":
    unittest.main()
