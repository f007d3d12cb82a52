"""Train one model with several processes, each on its share of every batch.

    torchrun --standalone --nproc_per_node=2 examples/ddp.py

As a pipeline's trial, give that command as ``train_entry_point``. The processes talk over gloo, so that this runs
without any GPU; with GPUs, use nccl and move model and batches to ``cuda:<LOCAL_RANK>``.
"""

import os

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from zeus_kfp.zeus_core.training import Trial


def main() -> None:
    """Train until the trial is over."""
    distributed.init_process_group("gloo")
    is_trial = "ZEUS_KFP_TRIAL" in os.environ
    trial = Trial.from_environment() if is_trial else Trial.local(batch_size=64, target_metric=0.95, max_epochs=20)

    torch.manual_seed(0)
    inputs = torch.randn(2048, 8)
    data = TensorDataset(inputs, (inputs.sum(1) > 0).long())
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=trial.local_batch_size, sampler=sampler)

    model = DistributedDataParallel(nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * trial.learning_rate_factor)
    for epoch in trial.epochs():
        sampler.set_epoch(epoch)
        for features, labels in trial.train(loader):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(features), labels).backward()
            optimizer.step()
        with torch.no_grad():
            right = (model(inputs).argmax(1) == data.tensors[1]).float().mean()
        trial.report_metric(right)
    trial.save_model(model.module)
    trial.close()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
