"""Puts a pipeline on the cluster, and a new version of it only when its content changed."""

from zeus_kfp.pipelines.client.api import KfpApi
from zeus_kfp.pipelines.client.package import PipelinePackage
from zeus_kfp.pipelines.client.records import UploadedPipeline
from zeus_kfp.zeus_core.errors import ClusterRefusedError
from zeus_kfp.zeus_core.validation import text


def upload(api: KfpApi, package: PipelinePackage, name: str | None = None) -> UploadedPipeline:
    """Return the version of a pipeline that holds a package's content, uploaded where none does.

    The content's hash stands in the version's description: KFP gives the first version of a pipeline the pipeline's
    own name, and lets nobody choose another.

    Args:
        api: Where it goes.
        package: What is uploaded.
        name: Name of the pipeline on the cluster; its own name where None.

    Raises:
        ClusterError: If the API fails or refuses it.
    """
    name = text("the pipeline's name", name or package.name, at_most=128)
    try:
        return _found(api, name, package) or _uploaded(api, name, package)
    except ClusterRefusedError as error:
        # Somebody else uploaded the same between our look and our upload.
        found = _found(api, name, package) if getattr(error.__cause__, "status", None) == 409 else None
        if found is None:
            raise
        return found


def _found(api: KfpApi, name: str, package: PipelinePackage) -> UploadedPipeline | None:
    pipeline_id = api.pipeline_id(name)
    if pipeline_id is None:
        return None
    mark = _mark(package)
    ids = (v.pipeline_version_id for v in api.versions(pipeline_id) if mark in (v.description or ""))
    version_id = next(ids, None)
    return None if version_id is None else UploadedPipeline(name, pipeline_id, version_id)


def _uploaded(api: KfpApi, name: str, package: PipelinePackage) -> UploadedPipeline:
    pipeline_id = api.pipeline_id(name)
    with package.as_file() as path:
        if pipeline_id is None:
            pipeline_id = api.upload_pipeline(path, name, _mark(package))
            version_id = next(api.versions(pipeline_id)).pipeline_version_id
        else:
            version_id = api.upload_version(path, f"sha256-{package.digest[:12]}", pipeline_id, _mark(package))
    return UploadedPipeline(name, pipeline_id, version_id, is_new=True)


def _mark(package: PipelinePackage) -> str:
    return f"zeus-kfp: content sha256 {package.digest}"
