"""How often a provider may be asked: a bucket of permissions that fills with time, in which acts go first.

Reads leave `reserve` permissions for acts, wait in the order in which they came, and wait while an act waits: a stop is never
behind a queue of listings. A pause that the provider asked of reads does not hold up an act: one request more does no harm.
Example: 60 a minute with a reserve of 10: 50 listings go out at once, the 51st waits a second, a stop goes at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from costguard.providers.transport.client import Deadline
from costguard.system.clock import is_simulated, pass_simulated_time
from costguard.system.clock import read_monotonic as usual

NAP_S = 0.05
ROUNDING = 1e-9


class TokenBucket:
    """`per_s` permissions a second, at most `burst` at once, the last `reserve` of them for acts alone.

    `monotonic` and `sleep` may be a test's; without `sleep` a waiting thread is woken as soon as its turn may have come.
    """

    def __init__(
        self,
        per_s: float,
        burst: float = 1,
        *,
        reserve: float = 0,
        monotonic: Callable[[], float] = usual,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self.per_s, self.burst, self.reserve = per_s, max(1.0, burst), reserve
        self._monotonic, self._sleep = monotonic, sleep
        self._turn = threading.Condition()
        self._tokens, self._at = self.burst, monotonic()
        self._closed_until = self._acts_closed_until = self._at
        self._reads, self._acts = deque[object](), deque[object]()

    def acquire(self, deadline: Deadline, *, act: bool = False) -> bool:
        """Wait for a permission; False where none can come before `deadline`."""
        ticket, queue = object(), self._acts if act else self._reads
        with self._turn:
            queue.append(ticket)
            try:
                while True:
                    wait = self._try_acquire(ticket, act=act)
                    if wait <= 0:
                        return True
                    if wait > deadline.compute_left():
                        return False
                    self._nap(wait)
            finally:
                queue.remove(ticket)
                self._turn.notify_all()

    def close_for(self, seconds: float, *, act: bool = False) -> None:
        """Give reads no permission for so long: the provider said that its quota is used up. `act`: acts neither."""
        with self._turn:
            until = self._monotonic() + seconds
            self._closed_until = max(self._closed_until, until)
            if act:
                self._acts_closed_until = max(self._acts_closed_until, until)

    def _try_acquire(self, ticket: object, *, act: bool) -> float:
        """0 where a permission was taken, else the least seconds after which one can come. Called with the lock held."""
        now = max(self._at, self._monotonic())
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.per_s)
        self._at = now
        closed = (self._acts_closed_until if act else self._closed_until) - now
        if closed > 0:
            return closed
        tickets_ahead = self._acts.index(ticket) if act else len(self._acts) + self._reads.index(ticket)
        needed = 1.0 if act else 1.0 + min(max(self.reserve, 0.0), self.burst - 1)
        lacking = needed + tickets_ahead - self._tokens
        if tickets_ahead == 0 and lacking <= ROUNDING:
            self._tokens -= 1.0
            return 0.0
        return max(lacking / self.per_s, ROUNDING)

    def _nap(self, wait: float) -> None:
        """Let others have the lock for a while: until something changes, or `wait` is over."""
        if self._sleep is None and is_simulated():
            pass_simulated_time(wait)
            return
        if self._sleep is None:
            self._turn.wait(min(wait, NAP_S))
            return
        self._turn.release()
        try:
            self._sleep(min(wait, NAP_S))
        finally:
            self._turn.acquire()
