"""A compiled pipeline: its name, its content's hash, and the parameters that it declares."""

import hashlib
import importlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

import yaml
from google.protobuf.json_format import MessageToDict

from zeus_kfp.components.image import DEFAULT_IMAGE, IMAGE
from zeus_kfp.zeus_core.errors import InvalidValueError

SHIPPED = ("recurring_training", "recurring_training_gpu")
"""Pipelines that come with the library, by name."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The fast one of the two safe loaders, where there is one."""


@dataclass(frozen=True, slots=True)
class PipelinePackage:
    """A pipeline as YAML.

    Attributes:
        text: The YAML.
        name: The pipeline's name.
        digest: SHA-256 of what the YAML holds; comments and layout don't count.
        declared: The parameters that it declares, as KFP's specification has them.
    """

    text: str
    name: str
    digest: str
    declared: Mapping[str, Any]

    @classmethod
    def of(cls, pipeline: Any) -> Self:
        """Return the package of a pipeline.

        Args:
            pipeline: A pipeline made with the Python DSL, such as recurring_training() returns; module:name of one; the
                path of a YAML file; or the name of a pipeline that comes with the library, which then runs in the
                image that ZEUS_KFP_IMAGE names.

        Raises:
            InvalidValueError: If there is no such file or module, or it holds no pipeline.
        """
        if isinstance(pipeline, str) and re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", pipeline):
            pipeline = _imported(*pipeline.split(":"))
        if isinstance(pipeline, str) and pipeline in SHIPPED:
            text = files("zeus_kfp.compiled").joinpath(f"{pipeline}.yaml").read_text("utf-8")
            return cls.of_text(text.replace(DEFAULT_IMAGE, IMAGE), pipeline)
        if isinstance(pipeline, str | Path):
            return cls.of_text(_read(pipeline), str(pipeline))
        _check_is_pipeline(pipeline)
        return cls.of_text(_compiled(pipeline), "the pipeline")

    @classmethod
    def of_text(cls, text: str, where: str) -> Self:
        """Return the package that YAML holds.

        Raises:
            InvalidValueError: If it holds no pipeline.
        """
        try:
            documents = list(yaml.load_all(text, _LOADER))
            spec = documents[0]
            name, root = spec["pipelineInfo"]["name"], spec["root"]
            canonical, declared = json.dumps(documents, sort_keys=True), dict(declared_parameters({"root": root}))
        except (yaml.YAMLError, TypeError, LookupError, ValueError, AttributeError) as error:
            raise InvalidValueError(f"{where} holds no compiled KFP pipeline: {error!r}; compile it first") from None
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        return cls(text, name, digest, declared)

    @contextmanager
    def as_file(self) -> Iterator[str]:
        """Give the YAML as a file for as long as it is needed."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "pipeline.yaml"
            path.write_text(self.text, encoding="utf-8")
            yield str(path)


def declared_parameters(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters that a pipeline specification declares, by name."""
    parameters: Mapping[str, Any] = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    return parameters


def declared_by(pipeline: Any) -> Mapping[str, Any]:
    """Return the parameters that a pipeline made with the Python DSL, or loaded from YAML, declares, by name.

    Raises:
        InvalidValueError: If it is no pipeline.
    """
    _check_is_pipeline(pipeline)
    return declared_parameters(MessageToDict(pipeline.pipeline_spec))


def _check_is_pipeline(pipeline: Any) -> None:
    if not hasattr(pipeline, "pipeline_spec"):
        raise InvalidValueError(
            f"{pipeline!r} is no pipeline: give one made with the Python DSL, the path of its YAML, or one of {SHIPPED}"
        )


def _imported(module: str, name: str) -> Any:
    """Return what a module holds under a name; a module in the working directory is found too."""
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidValueError(f"the pipeline {module}:{name} can't be found: {error}") from error
    finally:
        sys.path.remove(os.getcwd())


def _read(named: str | Path) -> str:
    path = Path(named)
    if path.suffix not in (".yaml", ".yml"):
        raise InvalidValueError(
            f"{str(named)!r} is no pipeline: no .yaml file, no module:name, and none of the library's own {SHIPPED}"
        )
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValueError(f"the pipeline {path} can't be read: {error}") from None


def _compiled(pipeline: Any) -> str:
    from kfp import compiler

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pipeline.yaml"
        compiler.Compiler().compile(pipeline, str(path))
        return path.read_text(encoding="utf-8")
