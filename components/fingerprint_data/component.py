"""Tell the version of the raw data, before a recurrence is opened."""

from kfp import dsl

from zeus_kfp.components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def fingerprint_data(
    entry_point: str, run_id: str, data_version: str = "", entry_source: str = "", arguments: str = "{}"
) -> str:
    """Return the version of the raw data as the user's function tells it, unless the run states one.

    Args:
        entry_point: module:function, called as function(**arguments); it returns text or a whole number.
        run_id: The KFP run, so that no cache answers; pass dsl.PIPELINE_JOB_ID_PLACEHOLDER.
        data_version: The version that the run states; it goes before the function's.
        entry_source: Source text that defines the function, where it lies in no module of the image.
        arguments: JSON object of keyword arguments for the function.
    """
    from zeus_kfp.components.fingerprint_data.fingerprint import fingerprint

    version = data_version or fingerprint(entry_point, entry_source=entry_source, arguments=arguments)
    print(f"the raw data of run {run_id} is version {version}")
    return version
