"""The demonstration's user code: handwritten digits, a small convolutional network, plain SGD.

It stands for what a user brings: a function that preprocesses and one that trains. It knows nothing of Kubeflow.
"""

from typing import Any

from zeus_kfp.pipelines.demo.fake_gpu import step_on_gpu
from zeus_kfp.zeus_core.training import Trial


def preprocess(output_path: str, validation_share: float = 0.25) -> None:
    """Split scikit-learn's digits (1,797 images of 8 x 8 pixels) and write them as one .npz file.

    Args:
        output_path: Where the file goes.
        validation_share: Share of the images kept for validation, 0 to 1.
    """
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None]
    split = train_test_split(images, digits.target, test_size=validation_share, random_state=0, stratify=digits.target)
    with open(output_path, "wb") as file:
        np.savez(file, train_x=split[0], val_x=split[1], train_y=split[2], val_y=split[3])


def train(trial: Trial) -> None:
    """Train until the validation accuracy reaches the trial's target.

    Args:
        trial: Gives the batch size and the data, measures, and says when to stop.
    """
    import torch
    from torch.nn import functional as f

    # One thread: the network is so small that several would only wait for each other.
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train_set, validation_set = _data_sets(trial.data_path)
    loader = torch.utils.data.DataLoader(train_set, batch_size=trial.batch_size, shuffle=True, drop_last=True)
    validation = torch.utils.data.DataLoader(validation_set, batch_size=512)
    model = _network()
    learning_rate = float(trial.arguments.get("learning_rate", 0.02)) * trial.learning_rate_factor
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    on_gpu = step_on_gpu()
    for _ in trial.epochs():
        model.train()
        for images, labels in trial.train(loader):
            optimizer.zero_grad()
            loss: Any = f.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            on_gpu(len(images))
        model.eval()
        correct = 0
        with torch.no_grad():
            for images, labels in trial.eval(validation):
                correct += int((model(images).argmax(1) == labels).sum())
        trial.report_metric(correct / len(validation_set))
    trial.save_model(model)


def _data_sets(path: str) -> tuple[Any, Any]:
    import numpy as np
    import torch

    with np.load(path) as data:
        arrays = {name: torch.from_numpy(data[name]) for name in data.files}
    pair = torch.utils.data.TensorDataset
    return pair(arrays["train_x"], arrays["train_y"]), pair(arrays["val_x"], arrays["val_y"])


def _network() -> Any:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 16, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
