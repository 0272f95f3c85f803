#!/usr/bin/env bash
# What a container of the image is: the first argument says it.
#   master | worker spark://host:7077   of a standalone cluster
#   executor                            of Kubernetes: Spark's driver starts it, with its settings in the environment
#   dagster …, python …                 as they are
#   anything else                       arguments of relstate
set -euo pipefail

SPARK_HOME="${SPARK_HOME:-$(python -c 'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])')}"
export SPARK_HOME

case "${1:-}" in
  master)
    shift
    exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.master.Master --host "${SPARK_MASTER_HOST:-0.0.0.0}" "$@"
    ;;
  worker)
    shift
    exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.worker.Worker "$@"
    ;;
  executor)
    # The variables are those that Spark's own image is given; options of Java are numbered.
    options=()
    while IFS= read -r name; do
      options+=("${!name}")
    done < <(compgen -e SPARK_JAVA_OPT_ | sort --version-sort || true)
    exec java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  dagster | dagster-webserver | dagster-daemon | python | bash)
    exec "$@"
    ;;
  *)
    exec relstate "$@"
    ;;
esac
