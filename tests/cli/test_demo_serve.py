"""`costguard demo --serve` as a person meets it: the printed link logs in, the page shows the weekend, Ctrl-C ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest


@pytest.mark.proof
def test_the_printed_link_logs_in_once_and_ctrl_c_ends_the_demo() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "costguard", "demo", "--serve"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        try:
            assert demo.stdout is not None
            link = urlsplit(demo.stdout.readline().strip())
            with closing(HTTPConnection(link.netloc, timeout=120)) as page:
                page.request("GET", link.path)
                answer = page.getresponse()
                assert (answer.status, answer.read().count(b"<form")) == (200, 1)
        finally:
            demo.send_signal(signal.SIGINT)
            _, said = demo.communicate(timeout=300)
    assert demo.returncode in (0, 130)
    assert "Traceback" not in said
