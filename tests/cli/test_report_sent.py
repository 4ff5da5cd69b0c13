"""`costguard report --email` and `--notify`: over a real mail server and a real web server of this machine."""

from __future__ import annotations

from email.message import EmailMessage
from pathlib import Path

import pytest

from costguard.data import ShippedFacts
from costguard.ledger.spans.writer import LedgerWriter
from costguard.services.report import ledger_answers, report_delivery
from tests.conftest import Command
from tests.fakes.server import Answer, serving
from tests.golden.test_golden import NOON, polls
from tests.providers.transport.wires import Told
from tests.smtp import PASSWORD, Post, post_office

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""What Apprise's plug-ins do when they are imported is theirs."""

MAIL = '[notify]\nmail = "env:MAIL_URL"\n'
MONTH = ("report", "--month", "2026-10", "--zone", "Europe/Berlin")


@pytest.fixture
def report(costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Two days of two scopes, and a settings file that names a mail server."""
    url = f"sqlite:///{tmp_path}/spent.db"
    with LedgerWriter(url, rules=ShippedFacts().get_billing_rules(), ceilings={"RTX-4090": 2 * 10**9}) as books:
        books.record_polls(polls())
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", url)
    monkeypatch.setattr(ledger_answers, "get_now", lambda: NOON)
    monkeypatch.setattr(report_delivery, "get_utc_now", lambda: NOON)
    (tmp_path / "costguard.toml").write_text(MAIL)
    return costguard


def parts_of(letter: EmailMessage) -> tuple[str, EmailMessage]:
    """What is read, and what is enclosed."""
    body = letter.get_body()
    assert body is not None
    [enclosed] = letter.iter_attachments()
    assert isinstance(enclosed, EmailMessage)
    return body.get_content(), enclosed


def test_a_report_goes_to_the_person_alone_with_the_page_enclosed(report: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with post_office(Post()) as post:
        monkeypatch.setenv("MAIL_URL", f"{post.url}&cc=boss@lab.org&bcc=spy@lab.org")
        ran = report(*MONTH, "--email", "lead@lab.org")
    assert ran.code == 0, ran.err
    assert "mail:lead@lab.org" in ran.out
    assert "yes" in ran.out
    assert PASSWORD not in ran.out + ran.err
    [(whom, letter)] = post.read
    assert whom == ("lead@lab.org",)
    assert letter["Cc"] is None
    printed = report(*MONTH, "--json").data
    text, page = parts_of(letter)
    assert letter["Subject"].startswith("costguard: GPU spending in 2026-10: $")
    assert f"2026-10 (Europe/Berlin): ${float(printed['totals']['expected']):,.2f}" in text
    assert "Sent now because it was requested, at 2026-11-01 13:00 CET." in text
    assert "Most expensive, 1: " in text
    assert "2026-09, the previous period: " in text
    assert "Idle: not known" in text
    assert "Saved by the guard: $0.00." in text
    assert "Not counted in full: " in text
    assert "Full report: costguard report --month 2026-10 --by provider,account,owner,gpu --zone Europe/Berlin" in text
    assert (page.get_filename(), page.get_content_type()) == ("costguard-2026-10.html", "text/html")
    assert page.get_content() == report(*MONTH, "--format", "html").out


def test_each_channel_is_told_and_the_one_that_refuses_ends_it_with_one(
    report: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud, closed = Told(), Told(Answer.of({}, status=403))
    with post_office(Post()) as post, serving(cloud) as address, serving(closed) as other:
        monkeypatch.setenv("MAIL_URL", post.url)
        ran = report(*MONTH, "--email", "lead@lab.org", "--notify", f"{other}/x", "--notify", f"{address}/hook", "--json")
    assert ran.code == 1
    assert [(one["sent"], one["why"]) for one in ran.data["sent"]] == [(True, None), (False, "it answered 403"), (True, None)]
    assert "was not sent: it answered 403" in ran.err
    assert "to 1 of 3 it was not sent" in ran.err
    assert len(post.letters) == 1
    [asked] = cloud.asked
    said = asked.json()
    assert said["title"] == f"costguard: {ran.data['title']}"
    [enclosed] = said["enclosed"]
    printed = report(*MONTH, "--json").data
    assert enclosed["json"] == printed
    assert said["notices"] == []


def test_a_mail_server_that_says_no_or_is_not_there_is_said_and_nothing_is_shown_of_it(
    report: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with post_office(Post(no="554 no spam here")) as post:
        monkeypatch.setenv("MAIL_URL", post.url)
        refused = report(*MONTH, "--email", "lead@lab.org")
    gone = report(*MONTH, "--email", "lead@lab.org")
    for ran, why in (
        (refused, "the server did not accept the letter (554)"),
        (gone, "the server cannot be reached or disconnected"),
    ):
        assert ran.code == 1
        assert f"mail:lead@lab.org: was not sent: {why}" in ran.err
        assert PASSWORD not in ran.out + ran.err


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--email", "lead"), "error: --email: is not an address of a person's mail: 'lead'\nhint: write lead@lab.org"),
        (("--email", "a@b.org\nBcc: c@d.org"), "error: --email: is not an address of a person's mail: "),
        (("--notify", "tame"), "error: --notify: is not an address, and no route has this name\nhint: did you mean team?"),
        (("--notify", "slack://TOKEN"), "error: --notify: slack:// addresses hold a secret"),
        (("--email", "a@b.org", "--attach", "htlm"), "error: --format: unknown format 'htlm'\nhint: did you mean html?"),
        (("--attach", "csv"), "error: --attach: sets the attachment's format\nhint: name a recipient: --email ADDRESS"),
        (("--email", "a@b.org", "--output", "x.html"), "error: --output: cannot be used when the report is sent"),
        (("--email", "a@b.org", "--format", "focus"), "error: --format: sets the format of the confirmation"),
        (("--email", "a@b.org"), "error: notify.mail: what env:MAIL_URL holds is not an address of a mail server"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is(
    report: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], says: str
) -> None:
    monkeypatch.setenv("MAIL_URL", "slack://canary")
    (tmp_path / "costguard.toml").write_text(MAIL + '[[notify.route]]\nname = "team"\nto = "console"\n')
    ran = report(*MONTH, *flags)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(says), ran.err
    assert "canary" not in ran.err
