"""Launches runs in processes that were started, and imported everything, before."""

from __future__ import annotations

import importlib.util
import json
import logging
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from dagster import DagsterRun, DefaultRunLauncher
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.origin import DEFAULT_DAGSTER_ENTRY_POINT, get_python_environment_entry_point
from dagster._core.remote_origin import ManagedGrpcPythonEnvCodeLocationOrigin
from dagster._core.storage.tags import HIDDEN_TAG_PREFIX
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import ConfigurableClassData, serialize_value
from dagster._utils import get_run_crash_explanation

from relstate_dagster.jobs.catalog.locking import is_free

_HAS_LOCKS = importlib.util.find_spec("fcntl") is not None
if _HAS_LOCKS or TYPE_CHECKING:
    from relstate_dagster.instance.workers import RunWorker, RunWorkers

_log = logging.getLogger("relstate.runs")

#: The tag of a run, which the UI does not show, that says where its process is: the machine, and the file that it keeps locked.
WORKER_TAG = f"{HIDDEN_TAG_PREFIX}relstate_run_worker"


class WarmRunLauncher(DefaultRunLauncher):
    """Launches runs as Dagster does, in processes that are ready before.

    The process that is ready has imported Dagster and this package, and nothing of the code location's own, which each run
    loads as it then is. It is made ready after the first run that the web server, or the daemon, has launched, and ends with
    it, or after half an hour without a run. Left to Dagster are code locations that are servers of their own, and Windows.
    """

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(inst_data)
        self._workers = RunWorkers() if _HAS_LOCKS else None

    def launch_run(self, context: LaunchRunContext) -> None:
        """Begin a run."""
        if not self._has_begun(context.dagster_run):
            super().launch_run(context)

    def terminate(self, run_id: str) -> bool:
        """Ask a run to end.

        Its process notices that, on whatever machine it is.
        """
        run = self._instance.get_run_by_id(run_id) if self.has_instance else None
        if run is None or run.is_finished or not _place(run):
            return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]
        if self.check_run_worker_health(run).status != WorkerStatus.RUNNING:
            return False
        self._instance.report_run_canceling(run)
        return True

    @property
    def supports_check_run_worker_health(self) -> bool:
        """True: the daemon ends runs whose process has died.

        Even if what launched it died before.
        """
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Whether the process of a run is alive, as far as this machine knows."""
        place = _place(run)
        if place.get("host") != socket.gethostname() or not _HAS_LOCKS or not is_free(Path(place["lock"])):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, "the process of the run has died")

    def _has_begun(self, run: DagsterRun) -> bool:
        """Begin a run in the ready process, or a new one; return success."""
        origin = run.job_code_origin
        if self._workers is None or origin is None or not _is_local(run):
            return False
        instance = self._instance.get_ref()
        arguments = ExecuteRunArgs(origin, run.run_id, instance).get_command_args()[-2:]

        def place(worker: RunWorker | None) -> None:
            # Before the run begins: one that repeats another has the tag of that.
            where = {} if worker is None else {"host": socket.gethostname(), "lock": str(worker.lock)}
            self._instance.add_run_tags(run.run_id, {WORKER_TAG: json.dumps(where)})

        try:
            worker = self._workers.take(origin.executable_path, serialize_value(instance), list(arguments), place)
        except OSError:
            _log.warning("Dagster launches run %s: a process for it could not be started", run.run_id, exc_info=True)
            worker = None
        if worker is None:  # that Python does not have this package, say
            place(None)
            return False
        self._run_ids.add(run.run_id)
        followed = (worker, origin.executable_path, run.run_id)
        threading.Thread(target=self._follow, args=followed, name=f"run-{run.run_id}", daemon=True).start()
        return True

    def _follow(self, worker: RunWorker, executable: str, run_id: str) -> None:
        """Wait for the end of a run, report its crash, and ready the next process."""
        code = worker.wait()
        if not self.has_instance or self._workers is None:  # the web server, or the daemon, is about to end
            return
        run = self._instance.get_run_by_id(run_id)
        if run and not run.is_finished:
            message = get_run_crash_explanation(f"Run execution process for {run_id}", code)
            self._instance.report_engine_event(message, run, cls=type(self))
            self._instance.report_run_failed(run)
        self._workers.make_ready(executable, serialize_value(self._instance.get_ref()))


def _place(run: DagsterRun) -> dict[str, str]:
    """Place of a run's process; none if Dagster launched it."""
    place: dict[str, str] = json.loads(run.tags.get(WORKER_TAG, "{}"))
    return place


def _is_local(run: DagsterRun) -> bool:
    """Whether the code location's Python is local, and called as by default."""
    origin, remote = run.job_code_origin, run.remote_job_origin
    if origin is None or remote is None or origin.repository_origin.container_image:
        return False
    default = (DEFAULT_DAGSTER_ENTRY_POINT, get_python_environment_entry_point(origin.executable_path))
    if origin.repository_origin.entry_point not in default:
        return False
    # `dagster dev` and the web server talk through sockets to the servers that they start; servers of others have a port.
    location = remote.repository_origin.code_location_origin
    return isinstance(location, ManagedGrpcPythonEnvCodeLocationOrigin) or bool(getattr(location, "socket", None))
