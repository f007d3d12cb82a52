"""Schedules and runs on a Kubeflow Pipelines cluster."""

from zeus_kfp.pipelines.client.client import RecurringTrainingClient
from zeus_kfp.pipelines.client.records import Change, Deletion, RunStatus, ScheduleStatus, UploadedPipeline
from zeus_kfp.pipelines.client.trigger import Trigger

__all__ = [
    "Change",
    "Deletion",
    "RecurringTrainingClient",
    "RunStatus",
    "ScheduleStatus",
    "Trigger",
    "UploadedPipeline",
]
