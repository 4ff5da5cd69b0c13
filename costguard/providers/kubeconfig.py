"""Read a kubeconfig: where the API server of a context is, whom it trusts, and the token that is sent.

A token, a file with one, or no user at all for an address on this machine (`kubectl proxy`). A user with a client certificate
or with a program that makes tokens (`exec`) is refused with the reason: a guard that lists nodes and pods needs a service
account with that right alone, and starts no program that a file names (decision 0172).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from costguard.errors import ExposedError, InputError, shorten
from costguard.providers.transport import check_url
from costguard.providers.transport.client import is_loopback
from costguard.system.file_security import describe_exposure
from costguard.system.input_file import InputFileError, read_input_file
from costguard.system.secret import Secret
from costguard.values.checks import find_nearest_names

LONGEST_FILE = 2**20
"""Bytes of a kubeconfig that is read: one of a hundred clusters has about 500 kB."""
LONGEST_TOKEN = 64 * 1024
ACCOUNT_HINT = "costguard iam kubernetes-reader makes a service account; kubectl create token makes its token"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """How one cluster is asked. `authorities`: certificates (PEM) to trust instead of the system's; "": the system's.

    `token`: None: none is sent.
    """

    server: str
    authorities: str = ""
    token: Secret | None = None


def read_cluster_access(path: Path, context: str) -> ClusterAccess:
    """Return the access of `context` in the kubeconfig at `path`.

    Raises InputError, which names the file and the context, for what is missing or refused, and ExposedError for a file that
    others can read.
    """
    config = _read_file(path)
    where = f"{path}: context {shorten(context, 80)}"
    contexts = _list_named(config, "contexts", "context")
    if context not in contexts:
        near = ", ".join(find_nearest_names(context, contexts) or sorted(contexts)[:5])
        raise InputError("is not in this kubeconfig", field=where, hint=f"it has: {near or 'no context'}")
    chosen = contexts[context]
    cluster = _list_named(config, "clusters", "cluster").get(str(chosen.get("cluster")))
    if cluster is None:
        raise InputError("names a cluster that is not in this kubeconfig", field=where, hint="kubectl config view")
    server = check_url(str(cluster.get("server", "")), f"{where}: server")
    if cluster.get("insecure-skip-tls-verify"):
        hint = "write its certificate-authority-data instead"
        raise InputError("has insecure-skip-tls-verify: a token would go to any server", field=where, hint=hint)
    user = _list_named(config, "users", "user").get(str(chosen.get("user")), {})
    token = _read_token(user, path, where)
    if token is None and not is_loopback(urlsplit(server).hostname or ""):
        _refuse_user(user, where)
    return ClusterAccess(server=server, authorities=_read_authorities(cluster, path, where), token=token)


def _read_file(path: Path) -> Mapping[str, Any]:
    import yaml

    try:
        text = read_input_file(path, LONGEST_FILE).decode()
    except (OSError, InputFileError, ValueError) as broken:
        raise InputError("cannot be read", field=str(path), hint='set kubeconfig = "..." in [kubernetes]') from broken
    if others := describe_exposure(path):
        raise ExposedError(f"{path} {others}", provider="kubernetes", hint=f"chmod 600 '{path}'")
    try:
        config = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - a safe one
    except (yaml.YAMLError, RecursionError, ValueError):
        raise InputError("is not YAML", field=str(path), hint="kubectl config view --raw shows what kubectl reads") from None
    if not isinstance(config, Mapping):
        raise InputError("is no kubeconfig", field=str(path), hint="it has apiVersion, clusters, users and contexts")
    return config


def _list_named(config: Mapping[str, Any], key: str, inner: str) -> dict[str, Mapping[str, Any]]:
    """Return the tables of a kubeconfig's list by name: `clusters: [{name: prod, cluster: {...}}]`."""
    rows = config.get(key)
    tables = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    return {str(row.get("name")): row[inner] for row in tables if isinstance(row.get(inner), Mapping)}


def _read_token(user: Mapping[str, Any], path: Path, where: str) -> Secret | None:
    token, file = user.get("token"), user.get("tokenFile")
    if isinstance(file, str) and file:
        place = path.parent / file
        try:
            token = read_input_file(place, LONGEST_TOKEN).decode()
        except (OSError, InputFileError, ValueError):
            raise InputError(f"its tokenFile {place} cannot be read", field=where, hint="check the path") from None
    text = token.strip() if isinstance(token, str) else ""
    if not text:
        return None
    if len(text) > LONGEST_TOKEN or not all("!" <= letter <= "~" for letter in text):
        raise InputError("its token holds a character that a token cannot have", field=where, hint="copy it again")
    return Secret(text)


def _refuse_user(user: Mapping[str, Any], where: str) -> None:
    """Raise the InputError for a user without a token."""
    ways = {
        "exec": "its user starts a program (exec), which costguard does not do",
        "client-certificate-data": "its user has a client certificate, which costguard does not send",
        "client-certificate": "its user has a client certificate, which costguard does not send",
    }
    why = next((text for key, text in ways.items() if key in user), "its user has no token")
    raise InputError(why, field=where, hint=ACCOUNT_HINT)


def _read_authorities(cluster: Mapping[str, Any], path: Path, where: str) -> str:
    data, file = cluster.get("certificate-authority-data"), cluster.get("certificate-authority")
    try:
        if isinstance(data, str) and data:
            return base64.b64decode(data, validate=True).decode("ascii")
        if isinstance(file, str) and file:
            return read_input_file(path.parent / file, LONGEST_FILE).decode("ascii")
    except (binascii.Error, OSError, InputFileError, ValueError):
        hint = "kubectl config view --raw shows it"
        raise InputError("its certificate authority cannot be read", field=where, hint=hint) from None
    return ""
