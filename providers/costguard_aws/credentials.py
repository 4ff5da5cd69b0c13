"""AWS's keys: botocore's own chain, which reads the environment and home folder passed to costguard.

A `CredentialSource` is one set of credentials, and so one account: the default chain, a profile, or a role assumed from one of
them. Nothing is written, and botocore renews keys that expire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from botocore.configprovider import BOTOCORE_DEFAUT_SESSION_VARIABLES, ConfigChainFactory
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    ContainerProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
    EnvProvider,
    InstanceMetadataProvider,
    create_credential_resolver,
)
from botocore.exceptions import ProfileNotFound
from botocore.httpsession import URLLib3Session
from botocore.loaders import Loader, create_loader
from botocore.session import Session as BotocoreSession

from costguard.errors import CredentialsError, ExposedError, InputError
from costguard.system.file_security import describe_exposure
from costguard_aws.errors import AWS, NO_KEY, translate_botocore_errors

DEFAULT = "default"
"""The profile that means the whole chain: the environment, then the files, then the machine's own role."""

SESSION_NAME = "costguard"
OF_FILES = ("shared-credentials-file", "config-file", "assume-role")
"""botocore's words for keys that stand in ~/.aws, or are got with some that do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialSource:
    """One set of credentials.

    `profile`: "default" for the whole chain. `role_arn`: the role assumed from it, "" for none.
    """

    profile: str = DEFAULT
    role_arn: str = ""
    external_id: str = ""
    session_name: str = SESSION_NAME

    @property
    def label(self) -> str:
        """Its name in messages before its account is known."""
        return self.role_arn or f"profile {self.profile}"


def parse_sources(table: Mapping[str, Any]) -> Sequence[CredentialSource]:
    """Return every set of credentials of the settings; the default chain if they name none."""
    sources = [CredentialSource(profile=name) for name in table.get("profiles", [])]
    for role in table.get("roles", []):
        arn = role.get("role_arn", "")
        if not arn.startswith("arn:") or ":role/" not in arn:
            hint = 'role_arn = "arn:aws:iam::111122223333:role/costguard-reader"'
            raise InputError("needs the ARN of a role", field="providers.aws.roles.role_arn", hint=hint)
        sources.append(
            CredentialSource(
                profile=role.get("source_profile", DEFAULT),
                role_arn=arn,
                external_id=role.get("external_id", ""),
                session_name=role.get("session_name", SESSION_NAME),
            )
        )
    if len(set(sources)) != len(sources):
        raise InputError("name one set of credentials twice", field="providers.aws", hint="remove one of profiles or roles")
    return sources or [CredentialSource()]


def open_botocore_session(source: CredentialSource, environ: Mapping[str, str], home: Path) -> BotocoreSession:
    """Return botocore's session for `source`, which reads only `environ` and `home` of this machine."""
    session = BotocoreSession(profile=None if source.profile == DEFAULT else source.profile)
    chain, store = ConfigChainFactory(session=session, environ=environ), session.get_component("config_store")
    for name, (keys, variables, default, convert) in BOTOCORE_DEFAUT_SESSION_VARIABLES.items():
        provider = chain.create_config_chain(
            instance_name=name,
            env_var_names=variables,
            config_property_names=keys,
            default=_resolve_home_path(default, home),
            conversion_func=convert,
        )
        store.set_config_provider(name, provider)
    with _named(session):
        data_path = session.get_config_variable("data_path")
    session.register_component("data_loader", _open_loader(data_path))
    session.register_component("credential_provider", _build_resolver(session, environ))
    return session


@cache
def _open_loader(data_path: str | None) -> Loader:
    """Return botocore's reader of models, shared by all accounts: EC2's model is read once (0.16 s), and held once."""
    return create_loader(data_path)


def _resolve_home_path(default: Any, home: Path) -> Any:  # noqa: ANN401 - botocore's own defaults
    """Return a path such as `~/.aws/config` in the given home folder."""
    return str(home / default[2:]) if isinstance(default, str) and default.startswith("~/") else default


def _build_resolver(session: BotocoreSession, environ: Mapping[str, str]) -> CredentialResolver:
    """Return the default chain, with `environ` in place of the process's environment."""
    with _named(session):
        providers = create_credential_resolver(session).providers
    off = environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
    chain = []
    for provider in providers:
        if isinstance(provider, EnvProvider):
            chain.append(EnvProvider(environ=environ))
        elif isinstance(provider, ContainerProvider):
            chain.append(ContainerProvider(environ=environ))
        elif not isinstance(provider, InstanceMetadataProvider):
            chain.append(provider)
        elif not off:
            chain.append(_bypass_proxy(provider))
    return CredentialResolver(providers=chain)


def _bypass_proxy(provider: InstanceMetadataProvider) -> InstanceMetadataProvider:
    """Disable proxies for requests to the metadata service.

    A proxy of the environment would receive the machine's keys unencrypted.
    """
    fetcher = provider._role_fetcher  # noqa: SLF001 - botocore takes proxies from the environment, and no argument
    fetcher._session = URLLib3Session(timeout=fetcher._timeout, proxies={})  # noqa: SLF001 - the same
    return provider


class _Loaded:
    """A provider of credentials that were loaded already."""

    def __init__(self, credentials: Any) -> None:  # noqa: ANN401 - botocore has no types
        self._credentials = credentials

    def load_credentials(self) -> Any:  # noqa: ANN401 - the same
        """Return them."""
        return self._credentials


def load_credentials(source: CredentialSource, session: BotocoreSession, create: Callable[..., Any]) -> Any:  # noqa: ANN401 - botocore has no types
    """Return the source's credentials, which renew themselves, and let `session` use them.

    A role is assumed at its first use only, by a client that `create` makes. Raises CredentialsError if there are none.
    """
    with _named(session), translate_botocore_errors(source.label):
        credentials = session.get_component("credential_provider").load_credentials()
    if credentials is None:
        looked = "the environment, ~/.aws and this machine's own role"
        where = looked if source.profile == DEFAULT else f"profile {source.profile} of ~/.aws"
        raise CredentialsError(f"no key in {where}", provider=AWS, hint=NO_KEY)
    _check_exposure(source, session, str(credentials.method or ""))
    if source.role_arn:
        credentials = _assume_role(source, credentials, create)
    session.register_component("credential_provider", _Loaded(credentials))
    return credentials


def _assume_role(source: CredentialSource, credentials: Any, create: Callable[..., Any]) -> Any:  # noqa: ANN401 - the same
    more = {"RoleSessionName": source.session_name} | ({"ExternalId": source.external_id} if source.external_id else {})
    fetcher = AssumeRoleCredentialFetcher(create, credentials, source.role_arn, extra_args=more)
    return DeferredRefreshableCredentials(refresh_using=fetcher.fetch_credentials, method="assume-role")


def _check_exposure(source: CredentialSource, session: BotocoreSession, method: str) -> None:
    """Raise ExposedError if the keys are in a file that others on this machine can read."""
    for name in ("credentials_file", "config_file") if method in OF_FILES else ():
        path = Path(str(session.get_config_variable(name) or "")).expanduser()
        if others := describe_exposure(path):
            hint = f"chmod 600 '{path}'; if others may have read it, create a new key"
            raise ExposedError(f"{path} {others}", provider=AWS, account=source.label, hint=hint)


class _named:  # noqa: N801 - reads as a function
    """Report a profile that is missing in the files, with the setting that names it."""

    def __init__(self, session: BotocoreSession) -> None:
        self._session = session

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, broken: object, trace: object) -> None:
        if isinstance(broken, ProfileNotFound):
            name = self._session.profile or DEFAULT
            hint = "aws configure list-profiles shows those there are"
            raise InputError(f"there is no profile '{name}' in ~/.aws", field="providers.aws.profiles", hint=hint) from None
