"""Claims of views: other runs leave them alone, and go on beside this one.

A claim is a row of the catalog, and so are its views' epochs. One commit begins an epoch and claims its views; one commit
completes it and releases them. A claim has a lease, which the run renews as long as it lives. Of a run on this machine the
operating system's lock shows at once whether it is alive. What a dead run has left is settled by the next one that wants its
views.

First come, first served: a run that has to wait writes down that it does, as a claim with a ticket. It is in the way of those
that come later, until it has had its turn.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Collection, Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Final

from relstate_dagster.jobs.catalog.entries import Claim, EpochEntry
from relstate_dagster.jobs.catalog.locking import HolderLocks
from relstate_dagster.jobs.catalog.protocol import LOST, Claimed, ClaimLost, conflicting_claims, released
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.waiting import Patience, Waiting
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.engine.instants import utc_now

_log = logging.getLogger(__name__)

#: How long a claim outlives a process that renews it no more, on another machine or in an object store.
_LEASE_SECONDS: Final = 120.0
#: So often in a lease it is renewed.
_RENEWALS: Final = 3
#: How often a lease is looked at, at most.
_LEAST_SECONDS: Final = 2.0


def _lease_seconds() -> float:
    return float(os.environ.get("RELSTATE_LEASE_SECONDS", _LEASE_SECONDS))


class Claims:
    """The claim of a run: a context that renews its lease, and ends it.

    It is of one set of views at a time.

    Parameters
    ----------
    run_id, doing : named in the message of a run that waits for this one.
    patience : how to wait for others; what interrupts that is called before each commit too.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        run_id: str,
        doing: str,
        patience: Patience | None = None,
    ) -> None:
        self._catalog = warehouse.catalog
        self._locks = HolderLocks(warehouse.holders_path)
        self.id = uuid.uuid4().hex
        self.run_id = run_id
        self._doing = doing
        self._patience = patience or Patience()
        self._until = utc_now()
        self._may_hold = False
        self._ended = threading.Event()
        self._is_entered = False
        self._context = ExitStack()

    def __enter__(self) -> Claims:
        self._context.enter_context(self._locks.held(self.id))
        self._is_entered = True
        threading.Thread(target=self._renew, name="relstate-lease", daemon=True).start()
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None) -> None:
        self._ended.set()
        try:
            if self._may_hold and self.id in self._catalog.read().claims:
                self._catalog.update(self._given_up)
        except Exception:  # of a catalog that cannot be written: the lease ends by itself
            _log.debug("a claim could not be given back", exc_info=True)
        finally:
            self._context.close()

    def claim(self, views: Iterable[str], epoch: EpochEntry | None = None) -> Claim:
        """A claim of this run, to be written with the step that needs it."""
        self._until = utc_now() + timedelta(seconds=_lease_seconds())
        self._may_hold = True
        return Claim(
            self.id,
            self.run_id,
            tuple(views),
            self._doing,
            socket.gethostname(),
            os.getpid(),
            self._until,
            epoch,
            self._locks.place,
        )

    def take(self, views: Collection[str]) -> CatalogState:
        """Claim views that are only to be left alone, once they are free.

        Raises
        ------
        EpochError : they are held for longer than there is time to wait.
        """
        while True:
            self.acquire_views(views)
            state = self.claimed(views)
            if state is not None:
                return state

    def claimed(self, views: Collection[str]) -> CatalogState | None:
        """Claim views that are only to be left alone.

        ``None`` if another run has one of them.
        """
        own = self.claim(views)

        def step(state: CatalogState) -> CatalogState:
            # What a dead run has left unfinished stays for the run that settles it.
            alive = self.alive_claims(state, views)
            if alive:
                raise Claimed(f"{alive[0]} the same; nothing was written")
            return self._without_dead(state, views).with_claim(own)

        try:
            return self._catalog.update(step)
        except Claimed:
            return None

    def give_back(self) -> CatalogState:
        """Release what :meth:`claimed` has claimed."""
        return self.record(self._catalog.update(lambda state: released(state, self.id)))

    def record(self, state: CatalogState) -> CatalogState:
        """Note a state that this run has written.

        Then it is known whether a claim is left to give back.
        """
        self._may_hold = self.id in state.claims
        return state

    def acquire_views(self, views: Collection[str], state: CatalogState | None = None) -> CatalogState:
        """A state in which no living run holds any of some views.

        Claims of dead runs are still in it.

        Parameters
        ----------
        state : one that was read just now; the newest without one.

        Raises
        ------
        EpochError : they are held for longer than there is time to wait; it names the holder.
        """
        pauses = Waiting(self._patience)
        while True:
            state = state or self._catalog.read()
            alive = self.alive_claims(state, views)
            if not alive:
                return state
            state = None
            pauses.pause([f"{holder} {', '.join(sorted(set(views) & set(holder.views)))}" for holder in alive])
            self._line_up(views)

    def _line_up(self, views: Collection[str]) -> None:
        """Write a ticket for views that this run waits for, unless it has one.

        Runs that come later wait for it.
        """
        if not self._is_entered:
            return  # its lock would not show whether it still waits
        own = self.claim(views)

        def step(state: CatalogState) -> CatalogState:
            known = state.claims.get(self.id)
            if known is not None and (known.ticket is None or set(views) <= set(known.views)):
                return state
            return state.with_claim(replace(own, ticket=state.version + 1))

        self._catalog.update(step)

    def alive_claims(self, state: CatalogState, views: Collection[str]) -> list[Claim]:
        """The claims of other living processes on any of some views."""
        return [claim for claim in conflicting_claims(state, self.id, views) if not self.is_dead(claim)]

    def check(self) -> None:
        """Check that the claim is still this run's, unless its lease was renewed in time.

        Raises
        ------
        ClaimLost : another run has taken the views over.
        """
        self._patience.interrupted()
        if utc_now() > self._until and self.id not in self._catalog.read().claims:
            raise ClaimLost(LOST)

    def is_dead(self, claim: Claim) -> bool:
        """Whether the holder of a claim is gone, or has not renewed it in time."""
        if claim.place and claim.place == self._locks.place:
            return self._locks.is_free(claim.id)
        return utc_now() > claim.until

    def _without_dead(self, state: CatalogState, views: Collection[str]) -> CatalogState:
        """The state without claims of dead runs that had no epoch."""
        for claim in conflicting_claims(state, self.id, views):
            if claim.epoch is None and self.is_dead(claim):
                state = released(state, claim.id)
        return state

    def without_dead(self, views: Collection[str]) -> CatalogState:
        """Forget dead claims on views that were for no epoch."""
        return self._catalog.update(lambda state: self._without_dead(state, views))

    def _given_up(self, state: CatalogState) -> CatalogState:
        """The claim that a run leaves behind if it ends early.

        An epoch stays for the next run to settle, else nothing does.
        """
        own = state.claims.get(self.id)
        if own is None or own.epoch is None:
            return released(state, self.id)
        return state.with_claim(replace(own, until=utc_now()))

    def _renew(self) -> None:
        lease = _lease_seconds()

        def renewed(state: CatalogState) -> CatalogState:
            own = state.claims.get(self.id)
            if own is None or self._ended.is_set():
                return state
            return state.with_claim(replace(own, until=utc_now() + timedelta(seconds=lease)))

        while not self._ended.wait(max(lease / _RENEWALS, _LEAST_SECONDS)):
            with suppress(Exception):  # a store that cannot be reached for a moment: there is time for more tries
                state = self._catalog.update(renewed)
                own = state.claims.get(self.id)
                self._until = self._until if own is None else own.until
