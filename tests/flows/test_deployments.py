"""deployments/prefect.yaml: what it names exists, and it works on any machine."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
TEXT = (REPOSITORY / "deployments" / "prefect.yaml").read_text()
DEPLOYMENTS = {deployment["name"]: deployment for deployment in yaml.safe_load(TEXT)["deployments"]}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployments_flow_takes_its_parameters(name):
    path, function = DEPLOYMENTS[name]["entrypoint"].split(":")
    assert (REPOSITORY / path).is_file()
    flow = getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), function)
    assert set(DEPLOYMENTS[name]["parameters"]) <= set(inspect.signature(flow.fn).parameters)


def test_the_deployments_have_the_names_that_users_type():
    from flows.train import deployed
    from flows.validate import nightly

    assert (nightly.name, deployed.name) == ("validate", "train")
    assert DEPLOYMENTS.keys() == {"nightly-4layer", "train"}
    assert DEPLOYMENTS["nightly-4layer"]["schedules"][0]["cron"]


def test_no_machine_is_named():
    assert "directory: /" not in TEXT
    assert str(REPOSITORY) not in TEXT
