"""Preprocess the data once: the only cached step of a recurrence."""

from kfp import dsl

from zeus_kfp.components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def preprocess_once(
    entry_point: str,
    data_epoch: str,
    data: dsl.Output[dsl.Dataset],
    entry_source: str = "",
    arguments: str = "{}",
):
    """Run the user's preprocessing and publish what it wrote.

    KFP reuses the data set of an earlier run while all inputs, data_epoch among them, are the same.

    Args:
        entry_point: module:function, called as function(output_path, **arguments); "" for no preprocessing.
        data_epoch: Key of the preprocessed data, from open_recurrence.
        entry_source: Source text that defines the function, where it lies in no module of the image.
        arguments: JSON object of keyword arguments for the function.
        data: What the function wrote at output_path, a file or a folder.
    """
    from zeus_kfp.components.preprocess_once.preprocessing import preprocess

    preprocess(data.path, entry_point=entry_point, entry_source=entry_source, arguments=arguments)
    data.metadata.update(data_epoch=data_epoch)
