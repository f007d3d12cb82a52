"""What a pipeline's tasks are given so that power limits can be set, and put back after the loss of a pod.

By default nothing: every pod stays within the restricted Pod Security Standard, with or without this.
"""

from dataclasses import dataclass

from kfp import dsl, kubernetes

from zeus_kfp.pipelines.recurring_training.checks import check_kubernetes_name
from zeus_kfp.zeus_core.power.found import FOLDER_VARIABLE
from zeus_kfp.zeus_core.power.zeusd import NODE_ADDRESS_VARIABLE, PORT_VARIABLE
from zeus_kfp.zeus_core.validation import integer

LIMITS_PATH = "/var/lib/zeus-kfp/limits"
"""Where the claim is mounted."""
ZEUSD_LABEL = "zeus-kfp/zeusd"
"""Label of the pods that zeusd takes connections from; see deploy/zeusd/networkpolicy.yaml."""


@dataclass(frozen=True, slots=True)
class PowerAccess:
    """A shared folder for the limits found, and the port of each node's zeusd.

    Attributes:
        claim: Name of the volume claim; "" for none.
        zeusd_port: TCP port; 0 for none.
    """

    claim: str
    zeusd_port: int

    def __post_init__(self) -> None:
        """Check both.

        Raises:
            InvalidValueError: If one can't be such a thing.
        """
        check_kubernetes_name("limits_claim", self.claim, "a volume claim", allow_empty=True)
        integer("zeusd_port", self.zeusd_port, at_least=0, at_most=65535)

    def give(self, task: dsl.PipelineTask) -> dsl.PipelineTask:
        """Let a training task set limits, and keep those that it finds."""
        if self.zeusd_port:
            kubernetes.use_field_path_as_env(task, env_name=NODE_ADDRESS_VARIABLE, field_path="status.hostIP")
            task.set_env_variable(PORT_VARIABLE, str(self.zeusd_port))
        return self.remember(task)

    def remember(self, task: dsl.PipelineTask) -> dsl.PipelineTask:
        """Let a task find the limits that pods have found, and the daemons through which they can be put back."""
        if self.zeusd_port:
            kubernetes.add_pod_label(task, label_key=ZEUSD_LABEL, label_value="true")
        if self.claim:
            kubernetes.mount_pvc(task, pvc_name=self.claim, mount_path=LIMITS_PATH)
            task.set_env_variable(FOLDER_VARIABLE, LIMITS_PATH)
        return task
