"""Every exception costguard raises on purpose.

    CostguardError                 exit 1   something failed; the message says what, to which thing, and what to do
    |- InputError                  exit 2   what the user wrote cannot be used
    |  |- SeveralInputsError                all that is wrong in one file
    |  |- UnknownNameError                  a model, GPU, provider ... that is not known; carries the nearest names
    |- NoAnswerError               exit 3   the question was understood and the answer is no (nothing fits, over the cap)
    |- IncompleteError             exit 4   the answer leaves out what could not be seen, and `--strict` asked for a whole one
    |- LedgerError                 exit 1   the ledger cannot be opened, read or written; what it holds is unharmed
    |  |- OlderLedgerError                  an older costguard wrote it: to be upgraded or imported
    |- ProviderError               exit 1   a provider could not be asked, or its answer cannot be used; says which provider
       |- CredentialsError                  there is no key, or the provider does not know it
       |- ForbiddenError                    the key is known and may not do this
       |- MissingError                      there is no such thing there (any more)
       |- ConflictError                     not in the state that it is in
       |- ThrottledError                    asked too often; says when to ask again
       |- RefusedError                      any other no
       |- UnreachableError                  no answer: network, TLS, time, a provider's own failure. An act may have worked
       |- OddAnswerError                    an answer that cannot be read: HTML, cut short, too large, a redirect

A message has three parts: *what* happened, to which *field* or file, and the *hint*: what to write instead.
Text that came from outside is cleaned of control characters before it can reach a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

FIELD_LENGTH_MAX = 200
"""Characters of a field or path in a message: a path can be thousands long."""

MOST_ERRORS = 10
"""Errors of one file that are shown at once."""

MOST_HINT_LINES = 4
"""With the line that says what is wrong, the five lines an error may have."""


class CostguardError(Exception):
    """Something failed. `str(error)` is for people: one to five lines, no secret, no control characters."""

    exit_code = 1
    excerpt: tuple[str, ...] = ()
    """What the user wrote and a caret below the place: two lines between the message and its hint; (): none are shown."""

    def __init__(self, what: str, *, field: str | None = None, hint: str | None = None) -> None:
        self.what = to_one_line(what)
        self.field = None if field is None else shorten(to_one_line(field), FIELD_LENGTH_MAX)
        self.hint = None if hint is None else "\n".join(replace_unprintable(hint).splitlines()[:MOST_HINT_LINES])
        super().__init__(str(self))

    def __str__(self) -> str:
        """`field: what`, the excerpt, then the hint on a line of its own."""
        lines = [self.what if self.field is None else f"{self.field}: {self.what}", *self.excerpt]
        return "\n".join(lines if self.hint is None else [*lines, f"hint: {self.hint}"])


class InputError(CostguardError):
    """What the user wrote cannot be used: names the file, line or field, what is wrong, what to write.

    `path`: the keys and numbers that lead to the value in its file (`("budget", 2, "cap")`); (): not known.
    """

    exit_code = 2
    path: tuple[str | int, ...] = ()


class SeveralInputsError(InputError):
    """Several things in one file cannot be used. `what`, `field` and `hint` are those of the first of `errors`."""

    def __init__(self, errors: tuple[InputError, ...]) -> None:
        self.errors = errors
        super().__init__(errors[0].what, field=errors[0].field, hint=errors[0].hint)

    def __str__(self) -> str:
        """Every error with its hint, MOST_ERRORS at most."""
        rest = len(self.errors) - MOST_ERRORS
        return "\n".join([*map(str, self.errors[:MOST_ERRORS]), *([f"and {rest} more"] if rest > 0 else [])])


@contextmanager
def collect_errors(errors: list[InputError], path: tuple[str | int, ...] = ()) -> Iterator[None]:
    """Add the InputErrors that the block raises to `errors`; `path`: of those that have none."""
    try:
        yield
    except SeveralInputsError as several:
        errors += several.errors
    except InputError as error:
        error.path = error.path or path
        errors.append(error)


def raise_errors(errors: list[InputError]) -> None:
    """Raise what is in `errors`, if there is anything."""
    if errors:
        raise errors[0] if len(errors) == 1 else SeveralInputsError(tuple(errors))


class UnknownNameError(InputError):
    """A name of a model, GPU, provider ... that is not known. `nearest` holds what may have been meant."""

    def __init__(self, kind: str, name: str, *, field: str, nearest: tuple[str, ...] = (), hint: str = "") -> None:
        self.name, self.nearest = name, nearest
        suggestion = f"did you mean {', '.join(nearest)}?" if nearest else ""
        hint = hint if nearest else hint.removeprefix("or ")
        super().__init__(
            f"unknown {kind} '{shorten(name)}'", field=field, hint=" ".join(filter(None, (suggestion, hint))) or None
        )


class NoLedgerError(InputError):
    """There is no ledger yet where the settings say it is."""


class NoAnswerError(CostguardError):
    """The question was understood, and the answer is no: nothing fits, or everything is over the cap."""

    exit_code = 3


class IncompleteError(CostguardError):
    """`--strict`, and the answer leaves something out: a scope that could not be asked, a time in which nobody looked."""

    exit_code = 4


class LedgerError(CostguardError):
    """The ledger cannot be opened, read or written: damaged, foreign, newer, locked, a full disk, a lost server.

    Whatever it is, what the ledger holds is as it was.
    """


class LeaseLostError(LedgerError):
    """Another watchdog has the duty by now whose result was to be recorded. Nothing was recorded."""


class ClockError(LedgerError):
    """This machine's clock differs too much from that of the ledger's server. Nothing was recorded."""


class OlderLedgerError(LedgerError):
    """The ledger is sound, and an older costguard wrote it: whoever opens it to write upgrades it, or it is to be imported."""


class ProviderError(CostguardError):
    """A provider could not be asked, or its answer cannot be used. It proves nothing about what the provider holds.

    `status`: of HTTP, 0 where there was none. `code`: the provider's own word for it, "" where it has none.
    """

    def __init__(
        self, what: str, *, provider: str, status: int = 0, code: str = "", hint: str | None = None, account: str = ""
    ) -> None:
        self.provider, self.account, self.status, self.code = provider, account, status, code
        super().__init__(what, field=f"{provider} {account}" if account else provider, hint=hint)


class CredentialsError(ProviderError):
    """There is no key, it has expired, or the provider does not know it."""


class ExposedError(CredentialsError):
    """There is a key, and others on this machine can read it: it is not used."""


class ForbiddenError(ProviderError):
    """The provider knows the key, and the key may not do this."""


class MissingError(ProviderError):
    """The provider says that there is no such thing, or no longer. A wrong key can look like it: see each provider."""


class ConflictError(ProviderError):
    """What was asked for is not possible in the state that the thing is in."""


class ThrottledError(ProviderError):
    """The provider was asked too often. `retry_after_s`: when it may be asked again, None where it does not say."""

    def __init__(
        self,
        what: str,
        *,
        provider: str,
        status: int = 429,
        code: str = "",
        hint: str | None = None,
        account: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(what, provider=provider, status=status, code=code, hint=hint, account=account)


class RefusedError(ProviderError):
    """The provider understood and said no."""


class UnreachableError(ProviderError):
    """No answer that says anything: the network, TLS, time, or a failure on the provider's side. An act may have worked."""


class UnsentError(UnreachableError):
    """No connection came about, so no request was sent: an act had no effect."""


class InvalidAnswerError(ProviderError):
    """An answer came that cannot be read: HTML, cut short, too large, of another shape, a redirect. An act may have worked."""


def replace_unprintable(text: str) -> str:
    """`text` without escape codes, bidirectional marks or other characters that could act on a terminal."""
    if text.isprintable():  # nearly always, and at the speed of C
        return text
    return "".join(c if c == "\n" or c.isprintable() else "\ufffd" for c in text)


def to_one_line(text: str) -> str:
    """`text` as `printable` leaves it and without line breaks: a name cannot forge a second line of a message."""
    return replace_unprintable(text).replace("\n", "\ufffd")


def shorten(text: str, longest: int = 80) -> str:
    """`text` cut to `longest` characters, so that a hostile name cannot fill the screen."""
    return text if len(text) <= longest else text[: longest - 1] + "\u2026"
