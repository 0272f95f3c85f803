"""The commits of a table that only epochs write: known ones, and those after them.

A view's state table and its published table are built up by epochs, each commit on the one before. The catalog has recorded
the last one: its Delta version and a digest, which the commit holds itself (``userMetadata``). Before an epoch builds on a
table, the commits since are looked at:

===============  ======================================================================================================
commit           what becomes of it
===============  ======================================================================================================
upkeep           changes no rows (OPTIMIZE, VACUUM, properties) or is a compaction of ours: passed over
of this epoch    an earlier try of the epoch made it: taken as done, if its digest is the one that the epoch would write
of another       a run wrote it that the catalog does not know (any more): taken back
foreign          another program changed rows: refused, or put right where the view's properties ask for it
===============  ======================================================================================================

Where the recorded commit itself is not there, the table is damaged or was replaced, and the view has to be rebuilt.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TypeAlias

from relstate_dagster.jobs.declare.model import PUBLISH_ON_CHANGE
from relstate_dagster.state_lib.errors import EpochError, SourceError, StateError, first_line
from relstate_dagster.state_lib.lake.folders import is_table
from relstate_dagster.state_lib.lake.log import Action, DeltaLog, commit_info, files_of
from relstate_dagster.state_lib.lake.table import DeltaError, DeltaTable, OpenedTable

Fence: TypeAlias = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A table's commit as the catalog recorded it: version and digest.

    ``None`` before the first.
    """

    version: int | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class EpochCommit:
    """Identity of an epoch's commit.

    Parameters
    ----------
    digest : names all that determines what was written; ``base`` is that of the commit it was built on, empty for the first.
    keeps_state : whether it has the state of all nodes; else the view's own rows alone, and the state is not kept any more.
    """

    view: str
    generation: str
    epoch: int
    run_id: str
    digest: str
    base: str
    # Another try of the epoch may have computed the same change set another way.
    keeps_state: bool = field(default=True, compare=False)

    def to_json(self) -> str:
        """Text for the commit's ``userMetadata``."""
        return json.dumps({"relstate": 2, **asdict(self)}, sort_keys=True)

    @classmethod
    def of(cls, actions: list[Action]) -> EpochCommit | None:
        """Identity from a commit's actions; ``None`` in commits of others."""
        return cls.of_text(commit_info(actions).get("userMetadata"))

    @classmethod
    def of_text(cls, user_metadata: str | None) -> EpochCommit | None:
        """As :meth:`of`, from a commit's ``userMetadata``."""
        try:
            found = json.loads(str(user_metadata or "{}"))
        except ValueError:
            return None
        if not isinstance(found, dict) or found.pop("relstate", None) != 2:
            return None
        return cls(**found)


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """A commit of another program that changed rows or columns."""

    version: int
    operation: str

    def __str__(self) -> str:
        return f"{self.operation} at version {self.version}"


@dataclass(frozen=True, slots=True)
class CommitsSince:
    """Commits after a known one.

    Parameters
    ----------
    known : the newest version up to which there is nothing but upkeep.
    newest : the newest version of the table.
    epochs : commits of epochs, with their versions.
    foreign : the first commit of another program that changed rows or columns.
    """

    known: int
    newest: int
    epochs: tuple[tuple[int, EpochCommit], ...] = ()
    foreign: ForeignCommit | None = None

    @property
    def is_clean(self) -> bool:
        """Whether nothing has changed rows or columns."""
        return not self.epochs and self.foreign is None

    def made_by(self, wanted: EpochCommit) -> int | None:
        """The version of an earlier try's commit of this epoch.

        ``None`` if there is none, or another commit changed rows too.
        """
        if self.foreign is not None or len(self.epochs) != 1:
            return None
        version, found = self.epochs[0]
        return version if replace(found, run_id=wanted.run_id) == wanted else None

    def __str__(self) -> str:
        if self.foreign is not None:
            return f"another program changed it ({self.foreign})"
        return ", ".join(
            f"run {epoch_commit.run_id} committed epoch {epoch_commit.epoch} at version {v}" for v, epoch_commit in self.epochs
        )


class Chain:
    """The commits of one table of a view.

    Parameters
    ----------
    name : the view.
    what : how messages name the table: ``state`` or ``published table``.
    is_maintenance : whether a commit is one of our own that rewrites rows without changing them.
    is_restorable : whether the recorded version is all there is to the table, so that anybody may put it back.
    fence : raises where the run must not change the table any more, because another one has taken its views over.
    """

    def __init__(
        self,
        table: OpenedTable,
        name: str,
        what: str,
        *,
        is_maintenance: Callable[[list[Action]], bool] = lambda _: False,
        is_restorable: bool = False,
        fence: Fence = lambda: None,
    ) -> None:
        self._table = table
        self._name = name
        self._what = what
        self._is_maintenance = is_maintenance
        self._is_restorable = is_restorable
        self._fence = fence
        self._log = DeltaLog(table.path)

    @property
    def rebuild(self) -> str:
        """Remedy for a table that is of no use any more."""
        return f"rebuild it with relstate run --full-refresh {self._name}"

    def since(self, recorded: Recorded) -> CommitsSince:
        """Commits after the one that the catalog has recorded.

        Raises
        ------
        StateError : the recorded commit is not in the table: it is damaged or was replaced.
        """
        newest = self._newest()
        if recorded.version is None:
            return self._between(-1, newest)
        self._check(recorded, recorded.version, newest)
        return self._between(recorded.version, newest)

    def check_not_empty(self, recorded: Recorded) -> None:
        """Look, at the cost of one file's size, whether the recorded commit was lost.

        Raises
        ------
        StateError : its file is empty, so that readers would get the rows of before.
        """
        if recorded.version is not None and self._log.is_empty(recorded.version):
            raise self._damaged(f"is damaged: version {recorded.version} in its log is empty")

    def problem(self, recorded: Recorded) -> str | None:
        """Damage, or changes by other writers, since the recorded commit, with the remedies."""
        if not is_table(self._table.path):
            return f"there is no Delta table at {self._table.path} any more; {self.rebuild}"
        try:
            since = self.since(recorded)
        except StateError as error:
            return str(error)
        return None if since.foreign is None else self.changed_by_others(since, recorded)

    def after(self, version: int) -> CommitsSince:
        """Commits after a version of the table."""
        return self._between(version, self._newest())

    def _between(self, version: int, newest: int) -> CommitsSince:
        """Commits after a version, up to another one.

        A RESTORE to a known version undoes what came between, whoever made it.
        """
        first, known = version, version
        epochs: list[tuple[int, EpochCommit]] = []
        foreign: ForeignCommit | None = None
        for number in range(version + 1, newest + 1):
            actions = self._commit(number)
            epoch_commit = EpochCommit.of(actions)
            if epoch_commit is not None:
                epochs.append((number, epoch_commit))
            elif first <= _restored_version(actions) <= known:
                epochs, foreign, known = [], None, number
            elif not (self._is_upkeep(actions, version) or self._is_maintenance(actions)):
                foreign = foreign or ForeignCommit(number, str(commit_info(actions).get("operation", "a commit")))
            elif not epochs and foreign is None:
                known = number
        return CommitsSince(known, newest, tuple(epochs), foreign)

    def expect(self, known: int) -> Callable[[DeltaTable], None]:
        """A check that the next commit follows a known version.

        It raises EpochError if another commit came first.
        """

        def check(table: DeltaTable) -> None:
            since = self._between(known, table.version())
            if not since.is_clean:
                raise EpochError(f"view {self._name}: {self.describe(since)} at the same time; nothing was lost, run again")

        return check

    def describe(self, since: CommitsSince) -> str:
        """Commits after a known one, as part of a message."""
        return f"its {self._what} at {self._table.path} is not as the catalog knows it: {since}"

    def changed_by_others(self, since: CommitsSince, recorded: Recorded) -> str:
        """Changes by other writers with the remedies, for a message."""
        if not self._is_restorable:
            return f"{self.describe(since)}; {self.rebuild}"
        return (
            f"{self.describe(since)}; the rows of a view follow from its query. Let runs put it back (TBLPROPERTIES "
            f"('{PUBLISH_ON_CHANGE}' = 'restore')), or do so with the tool that changed it (RESTORE TABLE "
            f"delta.`{self._table.path}` TO VERSION AS OF {recorded.version}), or {self.rebuild}"
        )

    def restore(self, since: CommitsSince) -> CommitsSince:
        """Undo all that came after the known commits, by a commit that restores them.

        Raises
        ------
        StateError : their files are gone.
        """
        self._fence()
        try:
            self._table.latest().restore(since.known)
        except DeltaError as error:
            raise StateError(
                f"view {self._name}: {self.describe(since)}, and version {since.known} cannot be restored "
                f"({first_line(error)}); {self.rebuild}"
            ) from error
        return self.after(since.known)

    def _newest(self) -> int:
        try:
            return self._table.latest().version()
        except (DeltaError, OSError) as error:
            raise StateError(
                f"view {self._name}: its {self._what} at {self._table.path} cannot be opened ({first_line(error)}); "
                f"{self.rebuild}"
            ) from error

    def _check(self, recorded: Recorded, version: int, newest: int) -> None:
        if newest < version:
            raise self._damaged(f"ends at version {newest}, before version {version} that its last epoch wrote")
        try:
            epoch_commit = EpochCommit.of(self._log.commit(version))
        except SourceError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise self._damaged(f"is damaged: version {version} in its log is empty or cut off") from error
            # Delta deletes the commits that a checkpoint covers, after 30 days by default.
            return
        if epoch_commit is None or epoch_commit.digest != recorded.digest:
            raise self._damaged(f"has another commit at version {version} than its last epoch wrote")

    def _damaged(self, problem: str) -> StateError:
        return StateError(
            f"view {self._name}: its {self._what} at {self._table.path} {problem}; restore it from a backup, or {self.rebuild}"
        )

    def _commit(self, version: int) -> list[Action]:
        try:
            return self._log.commit(version)
        except SourceError as error:
            raise self._damaged(f"is damaged: version {version} in its log cannot be read") from error

    def _is_upkeep(self, actions: list[Action], known: int) -> bool:
        """Whether a commit leaves rows and columns as they are: OPTIMIZE, VACUUM, properties, creation."""
        if any(files_of(actions)):
            return False
        schemas = [a["metaData"]["schemaString"] for a in actions if "metaData" in a]
        if not schemas or known < 0:
            return True
        return _columns(schemas[-1]) == _columns(self._table.at(known).schema().to_json())


def epoch_txn_version(epoch: int, newest: int | None = None) -> int:
    """The transaction version of an epoch: an even number.

    A compaction that read as of epoch e takes 2e + 1.

    ``newest`` is the one that a table has. If a catalog was restored from a backup, it may be of a later epoch, and Delta
    skips what is not above it.
    """
    return 2 * epoch if newest is None else max(2 * epoch, 2 * (newest // 2) + 2)


def is_compaction(app_id: str) -> Callable[[list[Action]], bool]:
    """Whether a commit is a compaction of a view's state: its transaction versions are odd."""

    def check(actions: list[Action]) -> bool:
        transactions = [a["txn"] for a in actions if "txn" in a]
        return any(txn["appId"] == app_id and int(txn["version"]) % 2 == 1 for txn in transactions)

    return check


def _restored_version(actions: list[Action]) -> int:
    """The version that a RESTORE went back to; -2 for any other commit."""
    info = commit_info(actions)
    version = str((info.get("operationParameters") or {}).get("version"))
    # By a timestamp, Spark names no version.
    return int(version) if info.get("operation") == "RESTORE" and version.isdigit() else -2


def _columns(schema_json: str) -> list[tuple[str, str]]:
    return [(f["name"], json.dumps(f["type"], sort_keys=True)) for f in json.loads(schema_json)["fields"]]
