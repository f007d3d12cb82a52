"""Schedules and runs on a Kubeflow Pipelines cluster."""

from zeus_kfp.pipelines.client.client import RecurringTrainingClient
from zeus_kfp.pipelines.client.records import Change, Deletion, RunStatus, ScheduleStatus, UploadedPipeline

__all__ = ["Change", "Deletion", "RecurringTrainingClient", "RunStatus", "ScheduleStatus", "UploadedPipeline"]
