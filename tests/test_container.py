"""The container file: its entry point, and a build where there is a builder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.wheels import ROOT

_STUB = '#!/bin/sh\necho "$(basename "$0") $*"\n'
#: As Spark's driver gives them to an executor's pod.
_EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "4g",
    "SPARK_APPLICATION_ID": "app",
    "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
    "SPARK_EXECUTOR_POD_NAME": "pod",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_CLASSPATH": "/extra/*",
    "SPARK_JAVA_OPT_10": "-Dten=10",
    "SPARK_JAVA_OPT_2": "-Dtwo=a b",
}


@pytest.mark.parametrize(
    ("arguments", "runs"),
    [
        ([], "relstate "),
        (["run", "--full-refresh", "a"], "relstate run --full-refresh a"),
        (["dagster", "dev"], "dagster dev"),
        (["master"], "spark-class org.apache.spark.deploy.master.Master --host 0.0.0.0"),
        (["worker", "spark://m:7077"], "spark-class org.apache.spark.deploy.worker.Worker spark://m:7077"),
        (
            ["executor"],
            "java -Dtwo=a b -Dten=10 -Xms4g -Xmx4g -cp /extra/*:{spark}/jars/* "
            "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend --driver-url spark://driver:7078 --executor-id 3 "
            "--cores 2 --app-id app --hostname 127.0.0.1 --resourceProfileId 0 --podName pod",
        ),
    ],
    ids=["nothing", "verb", "dagster", "master", "worker", "executor"],
)
def test_the_entry_point_runs(tmp_path: Path, arguments: list[str], runs: str) -> None:
    for name in ("relstate", "dagster", "java", "spark/bin/spark-class"):
        stub = tmp_path / name
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text(_STUB)
        stub.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SPARK_HOME": str(tmp_path / "spark"), **_EXECUTOR}
    command = ["bash", str(ROOT / "container" / "entrypoint.sh"), *arguments]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == runs.format(spark=tmp_path / "spark") + "\n"


def test_what_the_image_copies_is_let_through() -> None:
    lines = (ROOT / "Containerfile").read_text().splitlines()
    copied = {name for line in lines if line.startswith("COPY ") and "--from" not in line for name in line.split()[1:-1]}
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    names = {name.split("/")[0] for name in copied if not name.startswith("--")}
    assert names == let_through
    assert all((ROOT / name).exists() for name in names)


def _builder() -> tuple[str, str]:
    """The first builder that answers, or why there is none."""
    why = "neither podman nor docker nor buildah is installed"
    for name in ("podman", "docker", "buildah"):
        if shutil.which(name):
            answer = subprocess.run([name, "info"], capture_output=True, text=True, check=False, timeout=60)
            if answer.returncode == 0:
                return name, ""
            why = f"{name} does not answer: {(answer.stderr.strip().splitlines() or ['nothing said'])[-1]}"
    return "", why


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_the_image_is_built_and_runs() -> None:
    builder, why = _builder()
    if not builder:
        pytest.skip(why)
    tag = f"relstate-test-{os.getpid()}"
    build = [builder, "build", "-f", "Containerfile", "-t", tag, "."]
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, (built.stdout + built.stderr)[-4000:]
    if builder == "buildah":
        return  # it builds, and runs nothing
    try:
        for arguments in (["--version"], ["doctor"], ["sql", "--warehouse", "/warehouse", "-e", "SELECT 1 AS one"]):
            run = subprocess.run([builder, "run", "--rm", tag, *arguments], capture_output=True, text=True, check=False)
            assert run.returncode == 0, run.stdout + run.stderr
    finally:
        subprocess.run([builder, "rmi", "--force", tag], capture_output=True, check=False)
